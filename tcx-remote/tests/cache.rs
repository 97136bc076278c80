//! Modules whose files are in a store: two machines with a near tier each, which see what the other one does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machines::{Machine, cache_at, segments};
use support::options;
use tcx_store::{Column, ColumnType, DType, ErrorKind, KeyType, Keys, Options, Spec};
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn two_machines_fill_a_module_and_read_each_others_rows() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2, 3], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1, 2, 3, 4]), [Some(10), Some(10), Some(10), None]);
    other.compute(&[1, 4], 20);
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3, 4]), [Some(10), Some(10), Some(10), Some(20)]);
    assert_eq!(segments(&server), 2);
    assert!(server.keys().iter().all(|key| !key.contains("/run-") && !key.contains("sessions")));
}

#[test]
fn rows_that_one_machine_invalidates_are_misses_on_the_other_and_are_computed_again() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [Some(10), Some(10)]);
    one.store().invalidate(&Keys::ints([1], 0)).unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [None, Some(10)]);
    other.compute(&[1], 30);
    other.store().flush().unwrap();
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2]), [Some(30), Some(10)]);
    }
}

#[test]
fn a_row_outlives_an_invalidation_of_another_machine_if_each_miss_looks_for_changes() {
    let server = Server::start();
    let (one, mut other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    other.open_with(&Options { refresh_every: Duration::ZERO, ..Options::default() });
    other.compute(&[2], 20);
    one.store().invalidate(&Keys::ints([3], 0)).unwrap();
    // The row is looked up after that has returned, and without a listing.
    other.compute(&[3], 30);
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
}

#[test]
fn rows_are_not_computed_while_another_thread_looks_for_changes() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1]), [Some(10)]);
    one.store().invalidate(&Keys::ints([2, 3, 4, 5], 0)).unwrap();
    let next = "change-00000000000000000001";
    server.fail_next(Operation::Head, next, Fault::Late(Duration::from_millis(500)));
    std::thread::scope(|scope| {
        for key in 2..6 {
            let other = &other;
            scope.spawn(move || other.compute(&[key], 20));
        }
    });
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[2, 3, 4, 5]), [Some(20); 4]);
}

#[test]
fn a_row_that_is_computed_just_after_an_invalidation_of_another_machine_is_right_or_missing() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    // The look of this batch is enough for the next one, unless that comes a second later.
    other.compute(&[2], 20);
    one.store().invalidate(&Keys::ints([3], 0)).unwrap();
    other.compute(&[3], 30);
    other.store().flush().unwrap();
    assert_eq!(other.refreshed(&[2]), [Some(20)]);
    let found = other.values(&[3]);
    assert!(found == [None] || found == [Some(30)], "{found:?}");
    other.compute(&[3], 30);
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
}

#[test]
fn a_row_that_is_replaced_is_served_by_every_machine_at_once() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    assert_eq!(other.refreshed(&[1]), [Some(10)]);
    let mut rows = other.store().lookup(Keys::ints([1], 0)).unwrap();
    assert!(other.store().reject(&mut rows, &[0]).unwrap());
    let values: Vec<u8> = (0..16).flat_map(|_| 11_i64.to_le_bytes()).collect();
    other.store().insert(&mut rows, &[0], vec![Column::dense(&values)]).unwrap();
    other.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2]), [Some(11), Some(10)]);
}

#[test]
fn another_module_is_refused_and_the_message_names_the_url() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let near = tempfile::tempdir().unwrap();
    let cache = cache_at(&server.url("p"), near.path(), options(&server));
    let identity = [("size".to_owned(), "2".to_owned())].into_iter().collect();
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[16] };
    let foreign = Spec::new("m_v1", KeyType::Int, &output, identity, Vec::new()).unwrap();
    let refused = cache.open(foreign, &Options::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains(&server.url("p/m_v1")), "{refused}");
}

#[test]
fn a_store_that_ignores_conditions_is_refused_at_the_first_write() {
    let server = Server::start();
    server.fail(|faults| faults.ignores_conditions = true);
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    let refused = format!("{:#}", one.store().flush().unwrap_err());
    assert!(refused.contains("`If-None-Match: *`"), "{refused}");
    assert_eq!(segments(&server), 0);
}

#[test]
fn segments_are_joined_and_replaced_ones_are_removed_from_the_store() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    for key in 0..6 {
        one.compute(&[key], key);
        one.store().flush().unwrap();
    }
    one.store().invalidate(&Keys::ints([5], 0)).unwrap();
    one.store().compact().unwrap();
    assert!(segments(&server) > 1, "readers find the old ones for an hour");
    one.store().collect(Duration::ZERO).unwrap();
    assert_eq!(segments(&server), 1);
    let expected = [Some(0), Some(1), Some(2), Some(3), Some(4), None];
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[0, 1, 2, 3, 4, 5]), expected);
    }
}

#[test]
fn an_older_copy_that_comes_while_segments_are_verified_keeps_what_was_joined() {
    let server = Server::start();
    let one = Machine::new(&server);
    for key in 0..3 {
        one.compute(&[key], key);
        one.store().flush().unwrap();
    }
    let before = server.keys();
    one.store().compact().unwrap();
    let joined =
        server.keys().into_iter().find(|key| key.contains("/seg-") && !before.contains(key)).unwrap();
    // The last look at the changes before the inputs are removed.
    for _ in 0..2 {
        server.fail_next(Operation::Head, "change-00000000000000000001", Fault::Late(Duration::from_secs(1)));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.planned() > 0 && !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.remove(&joined);
        });
        let collected = one.store().collect(Duration::ZERO);
        is_over.store(true, Ordering::SeqCst);
        collected.unwrap();
    });
    assert_eq!(server.planned(), 0, "the looks were made before the inputs were removed");
    assert_eq!(Machine::new(&server).refreshed(&[0, 1, 2]), [Some(0), Some(1), Some(2)]);
}

#[test]
fn the_requests_of_a_store_are_counted_as_the_server_counts_them() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let (traffic, counts) = (one.store().stats().traffic, server.counts());
    assert_eq!(
        (traffic.puts, traffic.gets, traffic.heads, traffic.lists, traffic.deletes),
        (counts.puts, counts.gets, counts.heads, counts.lists, counts.deletes)
    );
    assert!(traffic.bytes_sent > 0);
    let before = server.counts().all();
    for _ in 0..1000 {
        assert_eq!(one.values(&[1]), [Some(10)]);
    }
    // The store is listed now and then.
    assert!(server.counts().all() - before < 10, "rows that are found cost no request");
}

#[test]
fn with_every_fault_at_once_no_row_is_wrong_and_none_that_was_flushed_is_lost() {
    let server = Server::start();
    let machines = [Machine::new(&server), Machine::new(&server)];
    machines[0].compute(&[0], 0);
    machines[0].store().flush().unwrap();
    server.fail(|faults| {
        faults.permille = vec![
            (Fault::Before, 50),
            (Fault::After, 50),
            (Fault::Throttled, 30),
            (Fault::Conflict, 50),
            (Fault::Cut, 30),
            (Fault::Flipped, 30),
            (Fault::Late(Duration::from_millis(5)), 100),
            (Fault::Stale, 200),
        ];
    });
    let mut flushed = vec![0];
    for round in 1..30_i64 {
        let machine = &machines[round as usize % 2];
        machine.compute(&[round], round);
        if round % 7 == 0 {
            // An error says nothing of what has become of it.
            let _ = machine.store().invalidate(&Keys::ints([1000 + round], 0));
        }
        if machine.store().flush().is_ok() {
            flushed.push(round);
        }
        for machine in &machines {
            let keys: Vec<i64> = (0..=round).collect();
            for (key, value) in keys.iter().zip(machine.values(&keys)) {
                assert!(value.is_none_or(|value| value == *key), "{key}: {value:?}");
            }
        }
    }
    server.fail(|faults| faults.permille.clear());
    let other = Machine::new(&server);
    let expected: Vec<_> = flushed.iter().map(|key| Some(*key)).collect();
    assert_eq!(other.values(&flushed), expected);
    assert!(flushed.len() > 10);
}
