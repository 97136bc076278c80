//! Segments for which the near tier has no room: what is needed of them is read in the store, and what cannot be read is a miss.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use machines::{GIVES_UP, Machine, segments};
use support::options;
use tcx_store::{Keys, Traffic};
use tcx_test_s3::{Fault, Operation, Server};

/// Rows of a segment of five MiB.
const ROWS: i64 = 40_000;

/// A store with one segment of these rows, each with the value 10.
fn filled(server: &Server, rows: i64) {
    let one = Machine::new(server);
    one.compute(&(0..rows).collect::<Vec<_>>(), 10);
    one.store().flush().unwrap();
    assert_eq!(segments(server), 1);
}

fn traffic(machine: &Machine) -> Traffic {
    machine.store().stats().traffic
}

/// Keys all over a segment.
fn scattered(count: i64) -> Vec<i64> {
    (0..count).map(|number| (number * 7919 + 1) % ROWS).collect()
}

#[test]
fn rows_are_read_in_the_store_if_the_near_tier_has_no_room_for_their_segment() {
    let server = Server::start();
    filled(&server, ROWS);
    for near_bytes in [0, 1 << 20] {
        let machine = Machine::limited(&server, near_bytes);
        let before = traffic(&machine);
        let keys = scattered(200);
        assert_eq!(machine.values(&keys), vec![Some(10); 200]);
        assert_eq!(machine.values(&[ROWS]), [None]);
        let after = traffic(&machine);
        let gets = after.ranged_gets - before.ranged_gets;
        assert!((1..=40).contains(&gets), "{gets} requests for {} rows", keys.len());
        assert!(after.ranged_bytes > before.ranged_bytes && after.ranged_bytes <= after.bytes_received);
        // What was read is in the memory cache.
        assert_eq!(machine.values(&keys), vec![Some(10); 200]);
        assert_eq!(traffic(&machine).ranged_gets, after.ranged_gets);
        assert!(machine.files("files").is_empty());
    }
}

#[test]
fn the_requests_of_a_batch_are_made_at_the_same_time_for_all_segments() {
    let server = Server::start();
    let one = Machine::new(&server);
    for part in 0..4 {
        one.compute(&(5000 * part..5000 * (part + 1)).collect::<Vec<_>>(), part);
        one.store().flush().unwrap();
    }
    let machine = Machine::limited(&server, 0);
    server.fail(|faults| faults.latency = Duration::from_millis(200));
    let _ = server.take_most_in_flight();
    let keys: Vec<i64> = (0..4).map(|part| 5000 * part + 4000).collect();
    assert_eq!(machine.values(&keys), [Some(0), Some(1), Some(2), Some(3)]);
    assert!(server.take_most_in_flight() >= 4);
}

#[test]
fn what_this_machine_has_computed_is_sent_and_then_read_there_if_there_is_no_room() {
    let server = Server::start();
    let mut machine = Machine::limited(&server, 0);
    let keys: Vec<i64> = (0..1000).collect();
    machine.compute(&keys, 10);
    machine.store().flush().unwrap();
    assert_eq!((machine.files("files").len(), machine.files("spool").len(), segments(&server)), (0, 0, 1));
    assert_eq!(machine.values(&keys), vec![Some(10); 1000]);
    assert_eq!(machine.refreshed(&keys), vec![Some(10); 1000]);
    machine.open();
    assert_eq!(machine.values(&keys), vec![Some(10); 1000]);
    assert!(machine.files("files").is_empty());
}

#[test]
fn a_segment_that_was_sent_is_not_sent_again_if_the_near_tier_cannot_be_counted() {
    let server = Server::start();
    let machine = Machine::limited(&server, 1 << 30);
    machine.compute(&[0], 10);
    machine.store().flush().unwrap();
    // As a disk that fails: what the processes say to each other cannot be written.
    let budget = machine.near.path().join(".budget");
    fs::remove_dir_all(&budget).unwrap();
    fs::write(&budget, "").unwrap();
    machine.compute(&[1], 10);
    machine.store().flush().unwrap();
    assert_eq!((machine.files("spool").len(), segments(&server)), (0, 2));
    assert_eq!(machine.refreshed(&[0, 1]), [Some(10); 2]);
}

#[test]
fn what_there_is_room_for_is_kept_and_the_rest_is_read_in_the_store() {
    let server = Server::start();
    let one = Machine::new(&server);
    for part in 0..3 {
        one.compute(&(100 * part..100 * (part + 1)).collect::<Vec<_>>(), part);
        one.store().flush().unwrap();
    }
    let bytes = fs::metadata(&one.files("files")[0]).unwrap().len();
    let keys: Vec<i64> = (0..300).collect();
    let expected: Vec<_> = keys.iter().map(|key| Some(key / 100)).collect();
    let mut machine = Machine::limited(&server, 2 * bytes + bytes / 2);
    assert_eq!((machine.files("files").len(), machine.values(&keys)), (2, expected.clone()));
    assert_eq!(machine.refreshed(&keys), expected);
    assert_eq!(machine.files("files").len(), 2, "existing copies stay");
    // A smaller budget in the next run.
    machine.store = None;
    machine.cache = machine.cache.clone().near_bytes(Some(bytes));
    machine.open();
    assert_eq!((machine.files("files").len(), machine.values(&keys)), (1, expected.clone()));
    machine.cache = machine.cache.clone().near_bytes(None);
    machine.open();
    assert_eq!((machine.files("files").len(), machine.values(&keys)), (3, expected));
}

#[test]
fn what_arrives_damaged_cut_or_late_is_read_again_and_what_stays_damaged_is_a_miss() {
    let server = Server::start();
    filled(&server, ROWS);
    let machine = Machine::limited(&server, 0);
    let faults = [
        Fault::Flipped,
        Fault::Cut,
        Fault::Before,
        Fault::Throttled,
        Fault::Conflict,
        Fault::Late(Duration::from_millis(50)),
        Fault::Stalled(Duration::from_millis(50)),
    ];
    for (fault, key) in faults.into_iter().zip(10_i64..) {
        server.fail_next(Operation::Get, "/seg-", fault);
        assert_eq!(machine.values(&[2000 * key]), [Some(10)], "{fault:?}");
        assert_eq!(server.planned(), 0, "{fault:?}");
    }
    assert_eq!(machine.store().stats().damaged_segments, 0);
    server.fail(|faults| faults.permille = vec![(Fault::Flipped, 1000)]);
    assert_eq!(machine.values(&[ROWS - 1]), [None]);
    assert_eq!(machine.store().stats().damaged_segments, 1);
    server.fail(|faults| faults.permille.clear());
    sleep(Duration::from_secs(1));
    assert_eq!(machine.refreshed(&[ROWS - 1]), [Some(10)]);
}

#[test]
fn a_store_that_goes_away_in_the_middle_of_a_batch_makes_misses_and_forward_passes_go_on() {
    let server = Server::start();
    filled(&server, ROWS);
    let url = server.url("p");
    let machine = Machine::keeping(&url, options(&server).deadline(GIVES_UP), Some(0));
    let keys = scattered(60);
    // Some of the requests of the batch are answered.
    (0..5).for_each(|_| server.fail_next(Operation::Get, "/seg-", Fault::Denied));
    let found = machine.values(&keys);
    let missing = found.iter().filter(|value| value.is_none()).count();
    assert!(
        missing > 0 && found.iter().all(|value| value.is_none_or(|value| value == 10)),
        "{found:?}, {} {:?}",
        server.planned(),
        machine.store().stats()
    );
    assert!(machine.store().stats().failed_reads > 0);
    server.forget_planned();
    server.fail(|faults| faults.is_away = true);
    let (others, gets) = (scattered(400).split_off(200), server.counts().gets);
    let found = machine.values(&others);
    assert!(found.iter().all(|value| value.is_none_or(|value| value == 10)), "{found:?}");
    assert!(found.contains(&None));
    machine.compute(&others, 10);
    assert_eq!(machine.values(&others), vec![Some(10); 200]);
    assert!(server.counts().gets - gets < 100, "no lookup asks for each row");
    assert_eq!(machine.store().stats().damaged_segments, 0);
    server.fail(|faults| faults.is_away = false);
    machine.store().flush().unwrap();
    assert_eq!(machine.refreshed(&keys), vec![Some(10); 60]);
}

#[test]
fn rows_of_a_segment_that_is_collected_while_it_is_read_are_found_in_the_one_that_replaced_it() {
    let server = Server::start();
    let one = Machine::new(&server);
    for part in 0..5 {
        one.compute(&(1000 * part..1000 * (part + 1)).collect::<Vec<_>>(), part);
        one.store().flush().unwrap();
    }
    let other = Machine::limited(&server, 0);
    let before = segments(&server);
    one.store().compact().unwrap();
    one.store().collect(Duration::ZERO).unwrap();
    assert!(segments(&server) < before);
    // A folder is not listed twice within a moment.
    sleep(Duration::from_millis(200));
    let keys: Vec<i64> = (0..5000).step_by(99).collect();
    let expected: Vec<_> = keys.iter().map(|key| Some(key / 1000)).collect();
    assert_eq!(other.values(&keys), expected);
    // One that nothing has replaced.
    let last = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
    server.remove(&last);
    sleep(Duration::from_millis(200));
    let far: Vec<i64> = (0..5000).step_by(101).collect();
    assert!(other.values(&far).iter().all(|value| value.is_none_or(|value| value < 5)));
    assert_eq!(other.refreshed(&keys), vec![None; keys.len()]);
}

#[test]
fn an_invalidated_row_is_a_miss_and_a_replaced_one_the_newest_where_no_copy_is_kept() {
    let server = Server::start();
    filled(&server, 1000);
    let machine = Machine::limited(&server, 0);
    machine.store().invalidate(&Keys::ints([1, 2], 0)).unwrap();
    assert_eq!(machine.values(&[1, 2, 3]), [None, None, Some(10)]);
    machine.compute(&[1], 20);
    machine.store().flush().unwrap();
    for machine in [&machine, &Machine::limited(&server, 0), &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2, 3]), [Some(20), None, Some(10)]);
    }
}

#[test]
fn segments_are_joined_and_collected_by_a_machine_that_keeps_no_copies() {
    let server = Server::start();
    let one = Machine::new(&server);
    for part in 0..4 {
        one.compute(&(100 * part..100 * (part + 1)).collect::<Vec<_>>(), part);
        one.store().flush().unwrap();
    }
    drop(one);
    let machine = Machine::limited(&server, 0);
    machine.store().compact().unwrap();
    machine.store().collect(Duration::ZERO).unwrap();
    assert_eq!(segments(&server), 1);
    let keys: Vec<i64> = (0..400).collect();
    let expected: Vec<_> = keys.iter().map(|key| Some(key / 100)).collect();
    for machine in [&machine, &Machine::limited(&server, 0)] {
        assert_eq!(machine.refreshed(&keys), expected);
        assert!(machine.files("files").is_empty());
    }
}

#[test]
fn with_every_fault_at_once_no_row_that_is_read_in_the_store_is_wrong() {
    let server = Server::start();
    let one = Machine::new(&server);
    for part in 0..4 {
        one.compute(&(5000 * part..5000 * (part + 1)).collect::<Vec<_>>(), part);
        one.store().flush().unwrap();
    }
    let machine = Machine::limited(&server, 0);
    server.fail(|faults| {
        faults.permille = vec![
            (Fault::Before, 50),
            (Fault::Throttled, 30),
            (Fault::Cut, 50),
            (Fault::Flipped, 50),
            (Fault::Late(Duration::from_millis(5)), 100),
            (Fault::Stalled(Duration::from_millis(5)), 50),
            (Fault::Stale, 200),
        ];
    });
    let mut found = 0;
    for round in 0..40_i64 {
        let keys: Vec<i64> = (0..50).map(|number| (number * 7919 + round * 104_729) % 20_000).collect();
        for (key, value) in keys.iter().zip(machine.values(&keys)) {
            assert!(value.is_none_or(|value| value == key / 5000), "{key}: {value:?}");
            found += usize::from(value.is_some());
        }
    }
    assert!(found > 1000, "{found}");
}
