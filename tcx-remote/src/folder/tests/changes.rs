//! Changes that this process creates.

use std::io::ErrorKind;
use std::time::Duration;

use tcx_store::unstable::Storage;
use tcx_test_s3::{Fault, Operation, Server};

use super::{deny_segments, folder, has, invalidate, key, segment, wait_for_planned};
use crate::copy::files::change;
use crate::folder::RemoteFolder;

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
            wait_for_planned(&server);
            server.put(&key(&change(1)), &before);
        });
        assert!(folder.create_if_absent(&change(2), b"a tombstone").unwrap());
    });
    assert_eq!(server.object(&key(&change(2))).unwrap(), b"a tombstone");
}

#[test]
fn a_change_is_not_created_again_while_a_removal_of_it_may_come_a_second_time() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    // The first try was answered with an error, and may be done later.
    server.fail_next(Operation::Delete, &change(2), Fault::Before);
    server.fail_next(Operation::Delete, &change(2), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_planned(&server);
            server.put(&key(&change(1)), &before);
        });
        folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    });
    assert!(!has(&server, &change(2)));
    // Nor is anything created that counts on it.
    folder.sync().unwrap_err();
    folder.create_if_absent(&change(2), b"another one").unwrap_err();
    assert!(!has(&server, &change(2)));
}

#[test]
fn a_change_whose_removal_may_come_is_looked_at_on_where_another_has_the_number_before_it() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let mut other = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    (0..10).for_each(|_| server.fail_next(Operation::Delete, &change(2), Fault::Denied));
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    server.forget_planned();
    // Its nonce.
    other[30] ^= 1;
    server.put(&key(&change(1)), &other);
    folder.try_now();
    for _ in 0..2 {
        let refused = folder.sync().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    }
}

#[test]
fn a_change_that_is_replaced_between_a_look_and_its_arrival_is_not_taken_for_the_one_before() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    invalidate(&server, 1);
    let after = server.object(&key(&change(1))).unwrap();
    assert_eq!(before.len(), after.len());
    server.put(&key(&change(1)), &before);
    server.fail_next(Operation::Get, &change(1), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_planned(&server);
            server.put(&key(&change(1)), &after);
        });
        assert_eq!(&folder.map(&change(1)).unwrap()[..], after);
    });
    let (_tier, fresh) = super::folder(&server, &[0]);
    let stamp = |folder: &RemoteFolder| folder.info(&change(1)).unwrap().stamp.inode;
    assert_eq!(stamp(&folder), stamp(&fresh), "it is known as what it is");
}

#[test]
fn a_change_whose_number_another_process_gets_while_it_is_taken_back_was_not_created() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    server.fail_next(Operation::Delete, &change(2), Fault::Late(Duration::from_secs(1)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.planned() > 0 || has(&server, &change(2)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.put(&key(&change(1)), &before);
            server.put(&key(&change(2)), b"another one");
        });
        folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    });
    assert_eq!(server.object(&key(&change(2))).unwrap(), b"another one");
}

#[test]
fn a_change_whose_removal_may_still_come_does_not_count_as_created() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    (0..10).for_each(|_| server.fail_next(Operation::Delete, &change(2), Fault::Denied));
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    server.forget_planned();
    server.put(&key(&change(1)), &before);
    folder.try_now();
    let refused = folder.sync().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    assert!(has(&server, &change(2)));
}

#[test]
fn a_change_is_taken_back_from_an_older_copy_that_came_after_it_was_written() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"a tombstone").unwrap();
    server.remove(&key(&change(1)));
    // By another thread.
    folder.0.wrote().unwrap();
    folder.map(&change(1)).unwrap_err();
    draft.create(&change(2)).unwrap_err();
    assert!(!has(&server, &change(2)));
}

/// Another process creates change 0 again, goes by change 1, and creates the next, when the look that found neither is long over.
#[test]
fn a_change_that_the_next_module_may_go_by_stays() {
    let server = Server::start();
    invalidate(&server, 1);
    server.remove(&key(&change(1)));
    let (_tier, folder) = folder(&server, &[0]);
    folder.0.probe().unwrap();
    server.remove(&key(&change(0)));
    server.fail_next(Operation::Head, &change(0), Fault::Denied);
    folder.create_if_absent(&change(1), b"a tombstone").unwrap_err();
    assert!(has(&server, &change(1)));
    folder.try_now();
    folder.list().unwrap();
    assert!(has(&server, &change(1)));
    folder.0.state(|state| assert!(state.strays.is_empty())).unwrap();
}

/// The engine has not adopted the last change that this process has received, because it could not read the one after it.
#[test]
fn a_change_is_taken_back_though_another_one_of_its_number_is_known() {
    for known in [&[0, 1, 2][..], &[0, 1, 2, 3], &[0, 2]] {
        let server = Server::start();
        invalidate(&server, 3);
        let (_tier, folder) = folder(&server, known);
        folder.0.probe().unwrap();
        (0..=3).for_each(|number| server.remove(&key(&change(number))));
        folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
        assert!(!has(&server, &change(2)), "{known:?}");
    }
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
fn a_change_that_could_not_be_compared_when_it_was_created_is_taken_back_later() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    server.keys().iter().for_each(|key| server.remove(key));
    server.fail_next(Operation::Head, &change(1), Fault::Denied);
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    assert!(has(&server, &change(2)), "nothing is removed as long as it is not known what is there");
    folder.try_now();
    folder.list().unwrap();
    assert!(!has(&server, &change(2)));
}

#[test]
fn a_change_that_could_not_be_compared_when_it_was_created_counts_once_it_is() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    for _ in 0..2 {
        server.fail_next(Operation::Head, &change(1), Fault::Denied);
    }
    let failed = folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::PermissionDenied, "{failed}");
    // What counts on it is not written before.
    folder.try_now();
    folder.sync().unwrap_err();
    folder.try_now();
    folder.sync().unwrap();
    assert!(has(&server, &change(2)));
    assert_eq!(server.planned(), 0);
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
            wait_for_planned(&server);
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

#[test]
fn a_removal_that_was_answered_with_an_error_meets_no_later_change_of_its_number() {
    let server = Server::start();
    invalidate(&server, 1);
    let (_tier, folder) = folder(&server, &[0, 1]);
    let before = server.object(&key(&change(1))).unwrap();
    server.remove(&key(&change(1)));
    (0..10).for_each(|_| server.fail_next(Operation::Delete, &change(2), Fault::Denied));
    folder.create_if_absent(&change(2), b"a tombstone").unwrap_err();
    server.forget_planned();
    // One of its tries has had its effect, and another may come.
    server.remove(&key(&change(2)));
    folder.try_now();
    folder.list().unwrap();
    server.put(&key(&change(1)), &before);
    folder.try_now();
    folder.create_if_absent(&change(2), b"another one").unwrap_err();
    assert!(!has(&server, &change(2)));
}
