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
