//! Segments that wait to be sent.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use tcx_store::unstable::Storage;
use tcx_store::{Column, Keys};
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::TempDir;

use super::{MODULE, folder, has, invalidate, key, machine, place, segment, stop_senders, wait_to_send};
use crate::bucket::Bucket;
use crate::copy::files::change;
use crate::folder::RemoteFolder;
use crate::near::Near;
use crate::near::budget::Budget;
use crate::near::lock::lock;

#[test]
fn a_segment_is_not_removed_while_another_process_sends_it_and_that_is_an_error() {
    let server = Server::start();
    let (_tier, folder) = folder(&server, &[]);
    server.put(&key(&segment(1)), b"sent");
    folder.make().unwrap();
    let sends = lock(&folder.0.near.lock(&segment(1))).unwrap();
    let busy = folder.0.remove_within(&segment(1), None, Duration::from_millis(50)).unwrap_err();
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
    stop_senders(&folder);
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows").unwrap();
    draft.publish(&segment(1), true).unwrap();
    assert!(folder.is_there(&segment(1)).unwrap(), "it waits");
    folder.remove(&segment(1)).unwrap();
    assert!(!folder.is_there(&segment(1)).unwrap());
    folder.settle().unwrap();
    assert!(!has(&server, &segment(1)));
}

#[test]
fn a_segment_is_not_sent_while_another_process_has_its_lock_and_that_is_an_error() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let holder = lock(&folder.0.near.lock(&segment(1))).unwrap();
    let waiting = wait_to_send(&folder, &segment(1));
    let busy = folder.0.send_within(&waiting, Duration::from_millis(50), true).unwrap_err();
    assert_eq!((busy.kind(), has(&server, &segment(1))), (ErrorKind::ResourceBusy, false), "{busy}");
    assert!(waiting.path.exists(), "it waits");
    drop(holder);
    folder.settle().unwrap();
    assert!(has(&server, &segment(1)));
}

/// The folder as another process of this machine has it.
fn beside(server: &Server, tier: &TempDir) -> RemoteFolder {
    let (url, options) = place(server);
    let (near, budget) = (Near::new(tier.path(), "store", MODULE), Budget::new(tier.path(), Some(0)));
    let folder = RemoteFolder::new(Bucket::new(url, options).unwrap(), MODULE, near, budget, 1 << 30);
    for number in [0, 1] {
        folder.map(&change(number)).unwrap();
    }
    stop_senders(&folder);
    folder
}

/// A segment with a row, which a machine has sent and lost since, and this folder has in the spool. Returns its name.
fn sound_segment(server: &Server, folder: &RemoteFolder) -> String {
    let (_other, store) = machine(server);
    let mut rows = store.lookup(Keys::ints([7], 0)).unwrap();
    store.insert(&mut rows, &[0], vec![Column::dense(&7_i64.to_le_bytes())]).unwrap();
    store.flush().unwrap();
    let sent = server.keys().into_iter().find(|key| key.contains("/seg-")).unwrap();
    let (name, bytes) = (sent.rsplit('/').next().unwrap(), server.object(&sent).unwrap());
    server.remove(&sent);
    let mut draft = folder.draft().unwrap();
    draft.write_all(&bytes).unwrap();
    draft.publish(name, true).unwrap();
    name.to_owned()
}

#[test]
fn a_segment_that_another_process_of_the_machine_removes_while_it_waits_is_not_lost() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    wait_to_send(&folder, &segment(1));
    beside(&server, &tier).remove(&segment(1)).unwrap();
    folder.settle().unwrap();
    assert!(!has(&server, &segment(1)));
}

#[test]
fn a_segment_that_another_process_has_sent_and_a_machine_has_removed_since_is_not_lost() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let name = sound_segment(&server, &folder);
    // It keeps no copy.
    let other = beside(&server, &tier);
    other.0.send_one(&folder.0.near.spooled().unwrap()[0]).unwrap();
    assert!(has(&server, &name));
    server.remove(&key(&name));
    folder.settle().unwrap();
}

#[test]
fn a_segment_belongs_to_the_history_that_was_known_when_it_was_begun() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
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
    folder.settle().unwrap_err();
    assert!(!has(&server, &segment(1)));
    fs::remove_file(&waiting[0].path).unwrap();
}

#[test]
fn a_segment_whose_sending_was_in_doubt_is_taken_back_from_a_module_that_took_the_place_of_its_own() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    wait_to_send(&folder, &segment(1));
    // It came to the store, and the reply was lost.
    server.put(&key(&segment(1)), b"rows");
    // An older copy takes the place of the module, and another machine changes that.
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    folder.0.wrote().unwrap();
    let refused = folder.settle().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    assert!(!has(&server, &segment(1)), "its base has another meaning there");
    // That is done once, and again only when nothing can be on its way any more.
    let before = server.counts().deletes;
    folder.settle().unwrap_err();
    assert_eq!(server.counts().deletes, before);
}

#[test]
fn folders_of_histories_in_which_nothing_waits_any_more_are_removed() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let near = &folder.0.near;
    let waiting = wait_to_send(&folder, &segment(1));
    near.clean(Duration::ZERO, |_| true);
    assert!(waiting.path.exists());
    folder.settle().unwrap();
    near.clean(Duration::ZERO, |_| true);
    assert!(!waiting.path.parent().unwrap().exists());
    // The next one makes it again.
    assert!(wait_to_send(&folder, &segment(2)).path.exists());
}

#[test]
fn a_segment_is_not_sent_while_a_removal_of_it_may_still_come() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let waiting = wait_to_send(&folder, &segment(1));
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    // The first try was answered with an error, and may be done later.
    server.fail_next(Operation::Delete, &segment(1), Fault::Before);
    folder.0.wrote().unwrap();
    folder.settle().unwrap_err();
    server.put(&key(&change(1)), &before);
    folder.0.wrote().unwrap();
    let refused = folder.settle().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    assert!(waiting.path.exists() && !has(&server, &segment(1)));
}

#[test]
fn a_segment_is_not_sent_by_another_process_either_while_a_removal_of_it_may_still_come() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let waiting = wait_to_send(&folder, &segment(1));
    let other = beside(&server, &tier);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    server.fail_next(Operation::Delete, &segment(1), Fault::Before);
    folder.0.wrote().unwrap();
    folder.settle().unwrap_err();
    server.put(&key(&change(1)), &before);
    other.0.state(|state| state.own.insert(segment(1))).unwrap();
    let refused = other.0.send_one(&waiting).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    // A note from the future holds no longer than one of this moment.
    let near = &other.0.near;
    near.note_removal(&segment(1), SystemTime::now() + Duration::from_hours(1)).unwrap();
    other.0.send_one(&waiting).unwrap_err();
    assert!(near.removed_at(&segment(1)).unwrap() <= SystemTime::now());
    assert!(waiting.path.exists() && !has(&server, &segment(1)));
}

#[test]
fn what_a_process_leaves_that_was_sending_at_the_start_of_another_one_is_sent_by_that() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let name = sound_segment(&server, &folder);
    let sends = lock(&folder.0.near.lock(&name)).unwrap();
    let other = beside(&server, &tier);
    other.resume();
    // It is killed, after the other one has tried once.
    std::thread::sleep(Duration::from_secs(2));
    drop(sends);
    while !has(&server, &name) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn segments_of_other_processes_keep_none_waiting_and_refused_ones_cost_no_request() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let other = beside(&server, &tier);
    wait_to_send(&other, &segment(1));
    let holder = lock(&folder.0.near.lock(&segment(1))).unwrap();
    let start = std::time::Instant::now();
    folder.settle().unwrap();
    assert!(start.elapsed() < Duration::from_mins(1), "it did not wait for the lock");
    drop(holder);
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    folder.0.wrote().unwrap();
    folder.settle().unwrap();
    folder.0.wrote().unwrap();
    let before = server.counts();
    folder.settle().unwrap();
    assert_eq!(server.counts().heads, before.heads);
}

#[test]
fn a_flush_answers_for_rows_that_were_found_while_they_waited_to_be_sent() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let name = sound_segment(&server, &folder);
    let other = beside(&server, &tier);
    assert!(other.list().unwrap().contains(&name));
    let sends = lock(&folder.0.near.lock(&name)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The process that sends it is killed.
            std::thread::sleep(Duration::from_millis(500));
            drop(sends);
        });
        other.settle().unwrap();
        assert!(has(&server, &name));
    });
}

#[test]
fn a_flush_fails_as_long_as_rows_that_were_found_cannot_be_sent() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let name = sound_segment(&server, &folder);
    let other = beside(&server, &tier);
    assert!(other.list().unwrap().contains(&name));
    folder.0.near.note_removal(&name, SystemTime::now()).unwrap();
    let waits = other.settle().unwrap_err();
    assert_eq!(waits.kind(), ErrorKind::WouldBlock, "{waits}");
    // Of its own rows alone, it is none.
    other.0.settle().unwrap();
}

#[test]
fn a_flush_fails_if_rows_that_were_found_are_of_a_module_that_the_store_has_no_more() {
    let server = Server::start();
    invalidate(&server, 1);
    let (tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    let name = sound_segment(&server, &folder);
    let other = beside(&server, &tier);
    assert!(other.list().unwrap().contains(&name));
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    // Also where it was found a moment ago.
    for _ in 0..2 {
        other.0.wrote().unwrap();
        let refused = other.settle().unwrap_err();
        assert!(refused.to_string().contains("is not the module any more"), "{refused}");
    }
}

#[test]
fn nothing_is_removed_from_a_module_that_comes_while_the_lock_is_waited_for() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    stop_senders(&folder);
    server.put(&key(&segment(1)), b"rows");
    folder.make().unwrap();
    let held = folder.hold().unwrap();
    let sends = lock(&folder.0.near.lock(&segment(1))).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.remove(&key(&change(1)));
            invalidate(&server, 1);
            drop(sends);
        });
        assert_eq!(held.remove(&segment(1)).unwrap_err().kind(), ErrorKind::NotFound);
    });
    assert!(has(&server, &segment(1)));
}
