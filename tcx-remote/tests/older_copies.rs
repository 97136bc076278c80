//! An older copy that comes into the place of a module in a store, while another copy is being sent there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
#[path = "support/copies.rs"]
mod copies;
mod support;

use std::io::ErrorKind;
use std::time::Duration;

use buckets::bucket;
use copies::{MODULE, compute, invalidate, pull_all, push_all, values};
use tcx_remote::Bucket;
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::{TempDir, tempdir};

fn change(number: u64) -> String {
    format!("change-{number:020}")
}

fn has(server: &Server, name: &str) -> bool {
    server.keys().iter().any(|key| key.ends_with(name))
}

/// A directory of which the store has two changes and lacks two, and a row that counts on them.
fn two_changes_ahead(there: &Bucket) -> TempDir {
    let one = tempdir().unwrap();
    compute(one.path(), &[1, 2, 3], 10);
    invalidate(one.path(), 1);
    push_all(one.path(), there).unwrap();
    invalidate(one.path(), 2);
    invalidate(one.path(), 3);
    compute(one.path(), &[7], 70);
    one
}

/// Sends what the store lacks, and does this just before its change 2 is created there. The copy is refused.
fn push_beside(server: &Server, one: &TempDir, there: &Bucket, act: impl FnOnce() + Send) {
    server.fail_next(Operation::Put, &change(2), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.planned() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            act();
        });
        let refused = push_all(one.path(), there).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    });
}

#[test]
fn no_row_is_served_that_a_change_of_an_older_copy_has_invalidated() {
    let server = Server::start();
    let there = bucket(&server, "p");
    let (other, copy) = (tempdir().unwrap(), tempdir().unwrap());
    let one = tempdir().unwrap();
    compute(one.path(), &[1, 2, 3], 10);
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    invalidate(one.path(), 1);
    push_all(one.path(), &there).unwrap();
    invalidate(one.path(), 2);
    compute(one.path(), &[7], 70);
    push_beside(&server, &one, &there, || {
        // It has another change 1.
        server.remove(&format!("p/{MODULE}/{}", change(1)));
        invalidate(other.path(), 7);
        push_all(other.path(), &there).unwrap();
    });
    pull_all(&there, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 7]), [Some(10), None]);
}

#[test]
fn changes_that_come_behind_a_missing_one_are_taken_back() {
    let server = Server::start();
    let there = bucket(&server, "p");
    let one = two_changes_ahead(&there);
    push_beside(&server, &one, &there, || server.remove(&format!("p/{MODULE}/{}", change(1))));
    assert!(!has(&server, &change(2)) && !has(&server, &change(3)));
    // The older copy is one of this directory.
    push_all(one.path(), &there).unwrap();
    let copy = tempdir().unwrap();
    pull_all(&there, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3, 7]), [None, None, None, Some(70)]);
}

#[test]
fn nothing_is_left_of_a_copy_to_a_module_that_was_removed_while_it_was_sent() {
    let server = Server::start();
    let there = bucket(&server, "p");
    let one = two_changes_ahead(&there);
    push_beside(&server, &one, &there, || server.keys().iter().for_each(|key| server.remove(key)));
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn changes_stay_that_processes_may_have_gone_by() {
    let server = Server::start();
    let there = bucket(&server, "p");
    let one = two_changes_ahead(&there);
    let key = format!("p/{MODULE}/{}", change(1));
    // Another change 1, so that none is missing.
    push_beside(&server, &one, &there, || server.put(&key, b"another one"));
    assert!(has(&server, &change(2)) && has(&server, &change(3)));
}
