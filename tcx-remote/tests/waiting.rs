//! Rows that wait on a machine while a store is away: they are found, sent once it is back, and nowhere else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use machines::{GIVES_UP, Machine, cache_at, deny_segments, segments, spec};
use support::{DEADLINE, options};
use tcx_store::{ErrorKind, Keys, Options};
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn while_the_store_is_away_rows_are_found_and_kept_and_they_are_sent_when_it_is_back() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    one.compute(&[2, 3], 20);
    one.store().flush_local().unwrap();
    let failed = one.store().flush().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    one.compute(&[4], 30);
    one.store().flush_local().unwrap();
    assert_eq!(one.values(&[1, 2, 3, 4]), [Some(10), Some(20), Some(20), Some(30)]);
    let stats = one.store().stats();
    assert_eq!((stats.rows_dropped, stats.is_writing_off, stats.buffered_rows), (0, false, 0));
    assert_eq!(stats.traffic.waiting_files, 2);
    one.store().refresh().unwrap_err();
    assert_eq!(segments(&server), 1);
    server.fail(|faults| faults.is_away = false);
    one.store().flush().unwrap();
    assert_eq!(one.store().stats().traffic.waiting_files, 0);
    assert_eq!(segments(&server), 3);
    let other = Machine::new(&server);
    assert_eq!(other.values(&[1, 2, 3, 4]), [Some(10), Some(20), Some(20), Some(30)]);
}

/// The change was created after the tool that removed the prefix had listed it.
#[test]
fn rows_are_not_sent_to_what_is_left_of_a_module_if_that_is_its_newest_change() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    one.store().invalidate(&Keys::ints([9], 0)).unwrap();
    for key in server.keys() {
        if !key.contains("change-00000000000000000001") {
            server.remove(&key);
        }
    }
    one.store().refresh().unwrap_or_default();
    one.compute(&[2], 20);
    one.store().flush().unwrap_err();
    assert_eq!(segments(&server), 0);
}

#[test]
fn segments_are_sent_in_the_background_several_at_the_same_time() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[0], 10);
    one.store().flush().unwrap();
    server.fail(|faults| faults.latency = Duration::from_millis(300));
    let _ = server.take_most_in_flight();
    for key in 1..7 {
        one.compute(&[key], 10);
        one.store().flush_local().unwrap();
    }
    // A flush would send what no thread has sent.
    let start = Instant::now();
    while segments(&server) < 7 && start.elapsed() < DEADLINE {
        sleep(Duration::from_millis(10));
    }
    // And what they were joined to.
    assert!(segments(&server) >= 7, "{} segments are in the store", segments(&server));
    assert!(server.take_most_in_flight() > 1);
    one.store().flush().unwrap();
    assert_eq!(one.store().stats().traffic.waiting_files, 0);
    server.fail(|faults| faults.latency = Duration::ZERO);
    assert_eq!(Machine::new(&server).values(&[0, 1, 2, 3, 4, 5, 6]), [Some(10); 7]);
}

#[test]
fn rows_that_vanish_before_they_are_sent_are_an_error_of_one_flush() {
    let server = Server::start();
    let one = Machine::impatient(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    server.fail(|faults| faults.is_away = true);
    // Known to be away: no thread begins to send what is sealed now.
    one.store().refresh().unwrap_err();
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    server.fail(|faults| faults.is_away = false);
    let lost = format!("{:#}", one.store().flush().unwrap_err());
    assert!(lost.contains("1 of the segments that waited"), "{lost}");
    one.compute(&[3], 30);
    one.store().flush().unwrap();
    let found = Machine::new(&server).values(&[1, 2, 3]);
    // A try to send it that was under way has the file open still, and may succeed.
    assert!(matches!(found[..], [Some(10), None | Some(20), Some(30)]), "{found:?}");
}

#[test]
fn rows_are_not_kept_when_too_much_waits_and_flush_says_so() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.store = None;
    one.cache = one.cache.clone().spool_bytes(0);
    one.open();
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    one.compute(&[3], 30);
    let full = format!("{:#}", one.store().flush_local().unwrap_err());
    assert!(full.contains("bytes wait in"), "{full}");
    assert_eq!(one.values(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
    server.forget_planned();
    one.store().flush().unwrap();
    assert_eq!(Machine::new(&server).values(&[1, 2, 3]), [Some(10), Some(20), Some(30)]);
}

/// No listing shows them to the machine that invalidates.
#[test]
fn rows_that_wait_die_by_an_invalidation_of_what_is_as_old() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    other.store().invalidate_older_than(SystemTime::now() + Duration::from_millis(1)).unwrap();
    assert_eq!(segments(&server), 1);
    server.forget_planned();
    one.store().flush().unwrap();
    one.compute(&[3], 30);
    one.store().flush().unwrap();
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2, 3]), [None, None, Some(30)]);
    }
}

#[test]
fn rows_that_wait_die_by_an_invalidation_that_came_before_they_were_sent() {
    let server = Server::start();
    let (one, other) = (Machine::new(&server), Machine::new(&server));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2, 3], 20);
    one.store().flush_local().unwrap();
    other.store().refresh().unwrap();
    other.store().invalidate(&Keys::ints([2], 0)).unwrap();
    assert_eq!(segments(&server), 1);
    server.forget_planned();
    one.store().flush().unwrap();
    for machine in [&one, &other, &Machine::new(&server)] {
        assert_eq!(machine.refreshed(&[1, 2, 3]), [Some(10), None, Some(20)]);
    }
}

#[test]
fn what_waits_is_not_sent_to_a_module_that_has_taken_the_place_of_its_own() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    assert_eq!((one.files("spool").len(), segments(&server)), (1, 1));
    server.keys().iter().for_each(|key| server.remove(key));
    server.forget_planned();
    let other = Machine::new(&server);
    other.compute(&[3], 30);
    other.store().flush().unwrap();
    one.store().flush().unwrap_err();
    // Nor by the next process, which finds another module and what waits for the one before.
    drop(one.store.take());
    one.open();
    one.store().flush().unwrap();
    assert_eq!((one.files("spool").len(), segments(&server)), (1, 1));
    assert_eq!(other.refreshed(&[2, 3]), [None, Some(30)]);
}

#[test]
fn what_waits_is_not_served_beside_changes_of_another_history() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    let copy: Vec<_> = server.keys().into_iter().map(|key| (server.object(&key).unwrap(), key)).collect();
    one.store().invalidate(&Keys::ints([9], 0)).unwrap();
    deny_segments(&server);
    one.compute(&[2], 20);
    one.store().flush_local().unwrap();
    one.store = None;
    // The older copy has no change 1, and gets another one.
    for key in server.keys() {
        server.remove(&key);
    }
    for (bytes, key) in &copy {
        server.put(key, bytes);
    }
    let other = Machine::new(&server);
    other.store().invalidate(&Keys::ints([2], 0)).unwrap();
    one.open();
    assert_eq!(one.values(&[1, 2]), [Some(10), None]);
    one.store().invalidate(&Keys::ints([3], 0)).unwrap();
    assert_eq!(other.refreshed(&[1, 2]), [Some(10), None]);
}

/// The history is the same, so that only the segments show it.
#[test]
fn an_older_copy_that_takes_the_place_of_a_module_while_rows_are_replaced_costs_no_row() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    let copy = server.keys();
    server.fail_next(Operation::Put, "/change-", Fault::Late(Duration::from_secs(1)));
    one.replace(1, 20);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| one.store().flush());
        while segments(&server) < 2 {
            sleep(Duration::from_millis(1));
        }
        server.keys().iter().filter(|key| !copy.contains(key)).for_each(|key| server.remove(key));
        // It writes the rows again.
        flush.join().unwrap().unwrap();
    });
    assert_eq!(one.values(&[1, 2]), [Some(20), Some(10)]);
    assert_eq!(Machine::new(&server).values(&[1, 2]), [Some(20), Some(10)]);
}

#[test]
fn a_module_cannot_be_opened_while_the_store_is_away_and_the_error_names_it() {
    let server = Server::start();
    server.fail(|faults| faults.is_away = true);
    let near = tempfile::tempdir().unwrap();
    let client = options(&server).deadline(GIVES_UP);
    let failed = cache_at(&server.url("p"), near.path(), client).open(spec(), &Options::default());
    let failed = format!("{:#}", failed.unwrap_err());
    assert!(failed.contains(&server.url("p/m_v1")), "{failed}");
}

#[test]
fn a_server_that_is_killed_and_started_again_has_what_was_acknowledged_and_gets_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with_directory("127.0.0.1:0", dir.path()).unwrap();
    let (url, address) = (server.url("p"), server.url("").split('/').nth(2).unwrap().to_owned());
    let one = Machine::with(&url, options(&server).deadline(GIVES_UP));
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    drop(server);
    one.compute(&[2], 20);
    one.store().flush().unwrap_err();
    assert_eq!(one.values(&[1, 2, 3]), [Some(10), Some(20), None]);
    let server = Server::with_directory(&address, dir.path()).unwrap();
    one.store().flush().unwrap();
    assert_eq!(Machine::new(&server).values(&[1, 2, 3]), [Some(10), Some(20), None]);
}
