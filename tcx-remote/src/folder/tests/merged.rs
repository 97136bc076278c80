//! Merged changes that this process creates, or that are all there is of changes.

use tcx_store::unstable::Storage;
use tcx_test_s3::{Fault, Operation, Server};

use super::{folder, has, invalidate, key};
use crate::copy::files::{change, merged};

#[test]
fn merged_changes_of_another_history_are_taken_back() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    let merged = "merged-00000000000000000001";
    folder.create_if_absent(merged, b"tombstones").unwrap_err();
    assert!(!has(&server, merged));
}

#[test]
fn merged_changes_that_another_process_has_gone_by_stay() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    folder.0.probe().unwrap();
    // An older copy comes into place, and what is merged cannot be compared.
    server.remove(&key(&change(1)));
    server.fail_next(Operation::Head, &change(1), Fault::Denied);
    folder.create_if_absent(&merged(1), b"tombstones").unwrap_err();
    // Another process takes it for what is there of change 1.
    server.put(&key(&change(2)), b"a tombstone");
    folder.try_now();
    folder.list().unwrap();
    assert!(has(&server, &merged(1)));
    folder.0.state(|state| assert!(state.strays.is_empty())).unwrap();
}

#[test]
fn a_change_is_created_where_merged_changes_are_all_there_is_of_the_one_before_it() {
    let server = Server::start();
    invalidate(&server, 1);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    server.put(&key(&merged(1)), &before);
    let (_tier, folder) = folder(&server, &[0]);
    folder.map(&merged(1)).unwrap();
    assert!(folder.create_if_absent(&change(2), b"a tombstone").unwrap());
    assert!(has(&server, &change(2)));
}
