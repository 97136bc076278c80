//! What a module or table in a directory does, one in a store does as well.

use std::sync::Arc;
use std::time::SystemTime;

use tcx_remote_tests::{Machine, load};
use tcx_test_s3::{SECRET_KEY, Server};

#[test]
fn a_module_is_filled_ahead_and_covered_and_described_and_verified() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let squares = one.squares();
    let ids: Vec<i64> = (1..=100).collect();
    let report = squares.warm(&ids, load).unwrap();
    assert_eq!(report.computed, 100);
    squares.flush().unwrap();
    let squares = Arc::new(other.squares());
    assert!(squares.coverage(&ids).unwrap().is_complete());
    assert_eq!(squares.prefetch(&ids).unwrap(), 100);
    assert_eq!(squares.epoch(&ids).batch_size(10).into_iter().count(), 10);
    let row = squares.describe(&[7]).unwrap().remove(0).unwrap();
    assert_eq!((row.bytes, row.segment.is_some()), (8, true));
    assert_eq!(other.computed(), 0);
    let report = squares.verify(1., 0, load).unwrap();
    assert!(report.is_sound() && report.checked == 100, "{report:?}");
    let usage = squares.disk_usage().unwrap();
    assert!(usage.bytes > 800 && usage.dead_bytes == 0, "{usage:?}");
    assert_eq!(squares.view(1).fetch(&[1], load).unwrap(), [1]);
}

#[test]
fn rows_are_invalidated_on_all_machines() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let (mine, others) = (one.squares(), other.squares());
    mine.forward(&[1, 2, 3, 4], &vec![1, 2, 3, 4]).unwrap();
    mine.flush().unwrap();
    let missing = || {
        others.refresh().unwrap();
        others.coverage(&[1, 2, 3, 4]).unwrap().missing().to_vec()
    };
    mine.invalidate(&[2]).unwrap();
    assert_eq!(missing(), [1]);
    mine.invalidate_where(|id| id == 4).unwrap();
    assert_eq!(missing(), [1, 3]);
    mine.invalidate_older_than(SystemTime::now()).unwrap();
    assert_eq!(missing(), [0, 1, 2, 3]);
    mine.forward(&[1], &vec![1]).unwrap();
    mine.flush().unwrap();
    assert_eq!(missing(), [1, 2, 3]);
    mine.invalidate_all().unwrap();
    assert_eq!(missing(), [0, 1, 2, 3]);
}

#[test]
fn values_of_a_table_are_put_and_replaced() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    let lengths = one.open().table::<Vec<i64>>("lengths_v1").unwrap();
    assert_eq!(lengths.put(&["a", "bb"], &vec![1, 2]).unwrap(), 2);
    lengths.flush_local().unwrap();
    lengths.flush().unwrap();
    let others = other.open().table::<Vec<i64>>("lengths_v1").unwrap();
    assert_eq!(others.put(&["bb", "ccc"], &vec![0, 3]).unwrap(), 1);
    others.replace(&["a"], &vec![-1]).unwrap();
    others.flush().unwrap();
    let third = Machine::new(&server).open().table::<Vec<i64>>("lengths_v1").unwrap();
    assert_eq!(third.get(&["a", "bb", "ccc"]).unwrap(), Some(vec![-1, 2, 3]));
}

#[test]
fn checks_that_were_passed_are_not_repeated_on_the_machine() {
    let server = Server::start();
    let one = Machine::new(&server);
    // One sample is computed a second time as a check, and a batch in parts.
    for (ids, computed) in [(vec![1, 2, 3], 5), (vec![4, 5, 6], 3)] {
        let before = one.computed();
        let cache = one.open();
        cache.module(one.module()).unwrap().forward(&ids, &ids).unwrap();
        cache.close().unwrap();
        assert_eq!(one.computed() - before, computed, "{ids:?}");
    }
}

#[test]
fn no_error_and_nothing_that_is_shown_contains_credentials() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    let cache = one.open();
    let squares = cache.module(one.module()).unwrap();
    squares.forward(&[1], &vec![1]).unwrap();
    squares.flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    squares.forward(&[2], &vec![2]).unwrap();
    let shown = [
        format!("{:#}", squares.flush().unwrap_err()),
        format!("{:#}", squares.refresh().unwrap_err()),
        format!("{:#}", squares.invalidate(&[1]).unwrap_err()),
        format!("{:#}", cache.table::<Vec<i64>>("other_v1").unwrap_err()),
        format!("{cache:?} {squares:?} {:?}", one.builder()),
    ];
    for shown in shown {
        assert!(!shown.contains(SECRET_KEY), "{shown}");
    }
}
