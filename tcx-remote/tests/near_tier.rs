//! Copies in the near tier: damaged downloads and copies, and a near tier that is lost, are received again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use std::fs;

use machines::Machine;
use tcx_test_s3::{Fault, Operation, Server};

#[test]
fn a_damaged_download_is_received_again_and_one_that_stays_damaged_is_a_miss() {
    let server = Server::start();
    let one = Machine::new(&server);
    one.compute(&[1], 10);
    one.store().flush().unwrap();
    for fault in [Fault::Flipped, Fault::Cut, Fault::Before, Fault::Throttled] {
        server.fail_next(Operation::Get, "/seg-", fault);
        assert_eq!(Machine::new(&server).values(&[1]), [Some(10)], "{fault:?}");
        assert_eq!(server.planned(), 0);
    }
    // It is received twice, and then read in the store, twice as well.
    for _ in 0..4 {
        server.fail_next(Operation::Get, "/seg-", Fault::Flipped);
    }
    let mut other = Machine::new(&server);
    assert_eq!(other.values(&[1]), [None]);
    assert!(other.files("files").is_empty());
    other.open();
    assert_eq!(other.values(&[1]), [Some(10)]);
}

#[test]
fn a_damaged_object_is_not_received_again_at_each_listing() {
    let server = Server::start();
    let one = Machine::new(&server);
    for value in [10, 20] {
        one.compute(&[value], value);
        one.store().flush().unwrap();
    }
    let key = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
    let mut bytes = server.object(&key).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    server.put(&key, &bytes);
    let other = Machine::new(&server);
    let found = other.values(&[10, 20]);
    assert_eq!(found.iter().flatten().count(), 1, "{found:?}");
    other.store().refresh().unwrap();
    let before = server.counts().gets;
    for _ in 0..5 {
        assert_eq!(other.refreshed(&[10, 20]), found);
    }
    // A part of it is read, as of each segment without a copy that was not open before.
    assert_eq!(server.counts().gets - before, 5);
}

#[test]
fn a_lost_near_tier_and_a_damaged_copy_are_received_again() {
    let server = Server::start();
    let mut one = Machine::new(&server);
    one.compute(&[1, 2], 10);
    one.store().flush().unwrap();
    let copy = one.files("files").pop().unwrap();
    let mut bytes = fs::read(&copy).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::remove_file(&copy).unwrap();
    fs::write(&copy, &bytes).unwrap();
    one.open();
    // The first look takes the copy out of service.
    one.values(&[1, 2]);
    one.store().refresh().unwrap();
    assert_eq!(one.values(&[1, 2]), [Some(10), Some(10)]);
    one.store = None;
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    one.open();
    assert_eq!(one.values(&[1, 2]), [Some(10), Some(10)]);
    // Also while the module is open.
    for entry in fs::read_dir(one.near.path()).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    one.compute(&[3], 30);
    one.store().flush().unwrap();
    assert_eq!(one.refreshed(&[1, 2, 3]), [Some(10), Some(10), Some(30)]);
}
