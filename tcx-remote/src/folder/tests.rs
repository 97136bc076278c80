//! The folder of a module on a test server: what happens between two requests, or while another process holds a lock.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::Storage;
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::TempDir;

use super::RemoteFolder;
use crate::bucket::Bucket;
use crate::cache::RemoteCache;
use crate::copy::files::{change, merged};
use crate::near::budget::Budget;
use crate::near::lock::lock;
use crate::near::{Near, Spooled};
use crate::options::ClientOptions;
use crate::url::{Location, StoreUrl};

const MODULE: &str = "m_v1";

fn segment(number: u8) -> String {
    format!("seg-{number:032x}-{number:016x}.arrow")
}

fn key(name: &str) -> String {
    format!("p/{MODULE}/{name}")
}

fn place(server: &Server) -> (StoreUrl, ClientOptions) {
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    let options = ClientOptions::default().deadline(Duration::from_secs(20));
    (url, server.settings().into_iter().fold(options, set))
}

/// The folder as a machine has it that has read these changes.
fn folder(server: &Server, changes: &[u64]) -> (TempDir, RemoteFolder) {
    let tier = tempfile::tempdir().unwrap();
    let (url, options) = place(server);
    let (near, budget) = (Near::new(tier.path(), "store", MODULE), Budget::new(tier.path(), None));
    let folder = RemoteFolder::new(Bucket::new(url, options).unwrap(), MODULE, near, budget, 1 << 30);
    for number in changes {
        folder.map(&change(*number)).unwrap();
    }
    (tier, folder)
}

/// Another machine, which makes the module if it does not exist.
fn machine(server: &Server) -> (TempDir, Arc<Store>) {
    let tier = tempfile::tempdir().unwrap();
    let (url, options) = place(server);
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[1] };
    let spec = Spec::new(MODULE, KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let store = RemoteCache::new(url, tier.path(), options).unwrap();
    let store = store.open(spec, &Options::default()).unwrap();
    (tier, store)
}

/// Another machine invalidates rows, by `changes` changes.
fn invalidate(server: &Server, changes: i64) {
    let (_tier, store) = machine(server);
    (0..changes).for_each(|id| store.invalidate(&Keys::ints([id], 0)).unwrap());
}

fn has(server: &Server, name: &str) -> bool {
    server.object(&key(name)).is_some()
}

fn deny_segments(server: &Server) {
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
}

#[test]
fn a_segment_is_not_removed_while_another_process_sends_it_and_that_is_an_error() {
    let server = Server::start();
    let (_tier, folder) = folder(&server, &[]);
    server.put(&key(&segment(1)), b"sent");
    folder.make().unwrap();
    let sends = lock(&folder.0.near.lock(&segment(1))).unwrap();
    let busy = folder.0.remove_within(&segment(1), Duration::from_millis(50)).unwrap_err();
    assert_eq!((busy.kind(), has(&server, &segment(1))), (ErrorKind::ResourceBusy, true), "{busy}");
    drop(sends);
    folder.remove(&segment(1)).unwrap();
    assert!(!has(&server, &segment(1)));
}

#[test]
fn a_segment_that_is_removed_while_it_waits_to_be_sent_has_not_vanished() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    deny_segments(&server);
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows").unwrap();
    draft.publish(&segment(1), true).unwrap();
    assert!(folder.is_there(&segment(1)).unwrap(), "it waits");
    folder.remove(&segment(1)).unwrap();
    assert!(!folder.is_there(&segment(1)).unwrap());
    server.forget_planned();
    folder.settle().unwrap();
    assert!(!has(&server, &segment(1)));
}

/// A segment of this folder that waits, and is not sent before the server forgets what is planned.
fn wait_to_send(server: &Server, folder: &RemoteFolder, name: &str) -> Spooled {
    deny_segments(server);
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows").unwrap();
    draft.publish(name, true).unwrap();
    folder.0.near.spooled().unwrap().pop().unwrap()
}

#[test]
fn a_segment_is_not_sent_while_another_process_has_its_lock_and_that_is_an_error() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let holder = lock(&folder.0.near.lock(&segment(1))).unwrap();
    let waiting = wait_to_send(&server, &folder, &segment(1));
    server.forget_planned();
    let busy = folder.0.send_within(&waiting, Duration::from_millis(50)).unwrap_err();
    assert_eq!((busy.kind(), has(&server, &segment(1))), (ErrorKind::ResourceBusy, false), "{busy}");
    assert!(waiting.path.exists(), "it waits");
    drop(holder);
    folder.settle().unwrap();
    assert!(has(&server, &segment(1)));
}

/// The thread that sends was denied access, and tries again after a second.
fn wait_for_first_try(server: &Server) {
    while server.planned() == 100 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The folder as another process of this machine has it.
fn beside(server: &Server, tier: &TempDir) -> RemoteFolder {
    let (url, options) = place(server);
    let (near, budget) = (Near::new(tier.path(), "store", MODULE), Budget::new(tier.path(), Some(0)));
    let folder = RemoteFolder::new(Bucket::new(url, options).unwrap(), MODULE, near, budget, 1 << 30);
    for number in [0, 1] {
        folder.map(&change(number)).unwrap();
    }
    folder
}

#[test]
fn a_segment_that_another_process_of_the_machine_removes_while_it_waits_is_not_lost() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    wait_to_send(&server, &folder, &segment(1));
    wait_for_first_try(&server);
    beside(&server, &tier).remove(&segment(1)).unwrap();
    server.forget_planned();
    folder.settle().unwrap();
    assert!(!has(&server, &segment(1)));
}

#[test]
fn a_segment_that_another_process_has_sent_and_a_machine_has_removed_since_is_not_lost() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    let (_other, store) = machine(&server);
    let mut rows = store.lookup(Keys::ints([7], 0)).unwrap();
    store.insert(&mut rows, &[0], vec![Column::dense(&7_i64.to_le_bytes())]).unwrap();
    store.flush().unwrap();
    let sent = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
    let (name, bytes) = (sent.rsplit('/').next().unwrap(), server.object(&sent).unwrap());
    server.remove(&sent);
    deny_segments(&server);
    let mut draft = folder.draft().unwrap();
    draft.write_all(&bytes).unwrap();
    draft.publish(name, true).unwrap();
    // It keeps no copy.
    let other = beside(&server, &tier);
    wait_for_first_try(&server);
    server.forget_planned();
    other.0.send_one(&folder.0.near.spooled().unwrap()[0]).unwrap();
    assert!(has(&server, name));
    server.remove(&sent);
    folder.settle().unwrap();
}

#[test]
fn a_change_that_other_processes_may_go_by_is_not_taken_back() {
    for is_replaced in [true, false] {
        let server = Server::start();
        invalidate(&server, 1);
        let (_tier, folder) = folder(&server, &[0, 1]);
        // An older copy comes into place, where another machine creates its own change 1.
        server.remove(&key(&change(1)));
        if is_replaced {
            invalidate(&server, 1);
        }
        // The comparison before was a moment ago.
        folder.0.probe().unwrap();
        let deletes = server.counts().deletes;
        let created = folder.create_if_absent(&change(2), b"a tombstone");
        assert_eq!((created.is_ok(), has(&server, &change(2))), (is_replaced, is_replaced));
        assert_eq!(server.counts().deletes == deletes, is_replaced);
    }
}

#[test]
fn a_change_is_created_again_if_the_one_before_it_came_while_it_was_taken_back() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    server.fail_next(Operation::Delete, &change(2), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.planned() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.put(&key(&change(1)), &before);
        });
        assert!(folder.create_if_absent(&change(2), b"a tombstone").unwrap());
    });
    assert_eq!(server.object(&key(&change(2))).unwrap(), b"a tombstone");
}

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
fn no_change_is_created_once_change_0_was_found_to_be_gone() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    server.remove(&key(&change(1)));
    server.remove(&key(&change(0)));
    // By another thread, after the engine has compared the folder and this process has written.
    folder.0.wrote().unwrap();
    assert_eq!(folder.map(&change(0)).unwrap_err().kind(), ErrorKind::NotFound);
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    assert!(!has(&server, &change(2)));
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

#[test]
fn a_listing_that_was_made_ahead_says_nothing_after_this_process_has_written() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    // A comparison fails, so the listing that was to follow is not made.
    folder.look_ahead();
    folder.0.wrote().unwrap();
    server.remove(&key(&change(1)));
    assert_eq!(folder.info(&change(1)).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(folder.map(&change(1)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!folder.list().unwrap().contains(&change(1)));
}

#[test]
fn a_segment_belongs_to_the_history_that_was_known_when_it_was_begun() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    deny_segments(&server);
    let before = folder.0.origin().unwrap();
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows of the module that is removed").unwrap();
    // The module is created again, and this process has read that.
    server.keys().iter().for_each(|key| server.remove(key));
    invalidate(&server, 1);
    folder.0.wrote().unwrap();
    for number in [0, 1] {
        folder.map(&change(number)).unwrap();
    }
    assert_ne!(folder.0.origin().unwrap(), before);
    draft.publish(&segment(1), true).unwrap();
    let waiting = folder.0.near.spooled().unwrap();
    assert_eq!(waiting.iter().map(|own| &own.origin).collect::<Vec<_>>(), [&before]);
    server.forget_planned();
    folder.settle().unwrap_err();
    assert!(!has(&server, &segment(1)));
    fs::remove_file(&waiting[0].path).unwrap();
}

#[test]
fn a_change_that_could_not_be_compared_when_it_was_created_is_taken_back_later() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    server.keys().iter().for_each(|key| server.remove(key));
    server.fail_next(Operation::Head, &change(1), Fault::Denied);
    assert!(folder.create_if_absent(&change(2), b"a tombstone").unwrap());
    assert!(has(&server, &change(2)), "nothing is removed as long as it is not known what is there");
    folder.try_now();
    folder.list().unwrap();
    assert!(!has(&server, &change(2)));
}

#[test]
fn a_change_that_could_not_be_taken_back_is_taken_back_later() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    server.keys().iter().for_each(|key| server.remove(key));
    (0..10).for_each(|_| server.fail_next(Operation::Delete, &change(2), Fault::Denied));
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    assert!(has(&server, &change(2)));
    server.forget_planned();
    folder.try_now();
    folder.list().unwrap();
    assert!(!has(&server, &change(2)));
}

#[test]
fn a_change_that_could_not_be_created_again_is_created_again_later() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    server.fail_next(Operation::Delete, &change(2), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.planned() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Not the first creation, which has happened.
            (0..10).for_each(|_| server.fail_next(Operation::Put, &change(2), Fault::Denied));
            server.put(&key(&change(1)), &before);
        });
        folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    });
    assert!(!has(&server, &change(2)));
    server.forget_planned();
    folder.try_now();
    folder.list().unwrap();
    assert_eq!(server.object(&key(&change(2))).unwrap(), b"a tombstone");
}

#[test]
fn a_history_that_this_process_has_begun_has_no_changes_of_the_one_before() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let (zero, before) = (server.object(&key(&change(0))).unwrap(), folder.0.origin().unwrap());
    server.keys().iter().for_each(|key| server.remove(key));
    invalidate(&server, 1);
    let other = server.object(&key(&change(0))).unwrap();
    server.keys().iter().for_each(|key| server.remove(key));
    // This process creates the module again.
    assert!(folder.create_if_absent(&change(0), &other).unwrap());
    deny_segments(&server);
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows").unwrap();
    folder.map(&change(0)).unwrap();
    draft.publish(&segment(1), true).unwrap();
    let origin = folder.0.near.spooled().unwrap().pop().unwrap().origin;
    assert!(origin.contains("-0-") && origin == folder.0.origin().unwrap(), "{origin}");
    // And another one, in its place.
    server.put(&key(&change(0)), &zero);
    folder.0.wrote().unwrap();
    folder.map(&change(0)).unwrap();
    assert!(before.starts_with(&folder.0.origin().unwrap()[..32]));
    assert!(folder.0.origin().unwrap().contains("-0-"));
}

#[test]
fn a_change_that_comes_late_to_an_older_copy_is_taken_back_unless_it_is_that_of_another_process() {
    for is_own in [true, false] {
        let server = Server::start();
        invalidate(&server, 1);
        let (_tier, folder) = folder(&server, &[0, 1]);
        folder.0.probe().unwrap();
        server.remove(&key(&change(1)));
        server.fail_next(Operation::Put, &change(2), Fault::Denied);
        folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
        server.put(&key(&change(2)), if is_own { b"a tombstone" } else { b"another one" });
        folder.try_now();
        folder.list().unwrap();
        assert_ne!(has(&server, &change(2)), is_own);
    }
}
