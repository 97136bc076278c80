//! Copies of one module that are changed on several machines, and copied while they are.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
#[path = "support/copies.rs"]
mod copies;
mod support;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use buckets::{bucket, bucket_with};
use copies::{MODULE, compute, invalidate, open, pull_all, push_all, values};
use tcx_remote::{pull, push};
use tcx_store::{Column, Keys, RecomputeSession};
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::{TempDir, tempdir};

/// A cache in which these rows have this value.
fn cache_of(value: i64) -> TempDir {
    let dir = tempdir().unwrap();
    compute(dir.path(), &[1, 2, 3], value);
    dir
}

fn replace(dir: &Path, key: i64, value: i64) {
    let store = open(dir);
    let session = RecomputeSession::new();
    let mut rows = store.lookup_to_put(Keys::ints([key], 0), Some(&session)).unwrap();
    let values: Vec<u8> = (0..16).flat_map(|_| value.to_le_bytes()).collect();
    store.insert(&mut rows, &[0], vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
}

#[test]
fn a_pull_uses_nothing_that_an_interrupted_one_has_left_of_another_store() {
    let (server, one, other, copy) = (Server::start(), cache_of(10), tempdir().unwrap(), tempdir().unwrap());
    let (first, second) = (bucket(&server, "p"), bucket(&server, "q"));
    push_all(one.path(), &first).unwrap();
    pull_all(&first, other.path()).unwrap();
    invalidate(one.path(), 1);
    invalidate(other.path(), 2);
    compute(other.path(), &[2], 22);
    push_all(one.path(), &first).unwrap();
    push_all(other.path(), &second).unwrap();
    server.fail_next(Operation::Get, "p/m_v1/seg-", Fault::Denied);
    pull_all(&first, copy.path()).unwrap_err();
    pull_all(&second, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3]), [Some(10), Some(22), Some(10)]);
}

#[test]
fn a_pull_uses_nothing_that_an_interrupted_one_has_left_of_a_prefix_that_was_filled_anew() {
    let (server, one, other, copy) = (Server::start(), cache_of(10), tempdir().unwrap(), tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    for dir in [&other, &copy] {
        pull_all(&bucket, dir.path()).unwrap();
    }
    invalidate(one.path(), 1);
    invalidate(other.path(), 2);
    compute(one.path(), &[9], 9);
    push_all(one.path(), &bucket).unwrap();
    server.fail_next(Operation::Get, "p/m_v1/seg-", Fault::Denied);
    pull_all(&bucket, copy.path()).unwrap_err();
    for key in server.keys() {
        server.remove(&key);
    }
    push_all(other.path(), &bucket).unwrap();
    pull_all(&bucket, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3, 9]), [Some(10), None, Some(10), None]);
}

#[test]
fn a_row_that_is_computed_in_a_copy_under_way_does_not_displace_a_replacement() {
    let (server, one, other) = (Server::start(), cache_of(10), tempdir().unwrap());
    let there = bucket(&server, "p");
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    replace(one.path(), 2, 20);
    let impatient =
        bucket_with(&server.url("p"), support::options(&server).deadline(Duration::from_millis(300)));
    for _ in 0..16 {
        server.fail_next(Operation::Put, "p/m_v1/seg-", Fault::Denied);
    }
    push_all(one.path(), &impatient).unwrap_err();
    pull_all(&there, other.path()).unwrap();
    compute(other.path(), &[2], 77);
    // Denials that were not met are left for the next try.
    assert!((0..20).any(|_| push_all(one.path(), &there).is_ok()));
    pull_all(&there, other.path()).unwrap();
    push_all(other.path(), &there).unwrap();
    pull_all(&there, one.path()).unwrap();
    for dir in [&one, &other] {
        open(dir.path()).compact().unwrap();
        assert_eq!(values(dir.path(), &[1, 2, 3]), [Some(10), Some(20), Some(10)]);
    }
}

#[test]
fn a_pull_gives_a_change_its_name_after_the_segments_that_it_commits() {
    let (server, one, other) = (Server::start(), cache_of(10), tempdir().unwrap());
    let there = bucket(&server, "p");
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    replace(one.path(), 2, 20);
    push_all(one.path(), &there).unwrap();
    // A file in the way of the change stands for a process that dies just before it.
    let change = other.path().join(MODULE).join("change-00000000000000000001");
    std::fs::create_dir(&change).unwrap();
    pull_all(&there, other.path()).unwrap_err();
    std::fs::remove_dir(&change).unwrap();
    assert_eq!(values(other.path(), &[2]), [Some(10)]);
    let segments = std::fs::read_dir(other.path().join(MODULE)).unwrap();
    let names = segments.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("seg-")).count(), 2);
    pull_all(&there, other.path()).unwrap();
    assert_eq!(values(other.path(), &[2]), [Some(20)]);
}

#[test]
fn a_pull_whose_stage_loses_a_change_is_an_error_and_gives_no_file_its_name() {
    let (server, one, copy) = (Server::start(), cache_of(10), tempdir().unwrap());
    let bucket = bucket(&server, "p");
    invalidate(one.path(), 1);
    push_all(one.path(), &bucket).unwrap();
    let stage = copy.path().join(".tcx-pull").join(MODULE);
    let mut lose = |done, total| {
        if done == total {
            std::fs::remove_file(stage.join("change-00000000000000000001")).unwrap();
        }
    };
    let failed = tcx_remote::pull(&bucket, copy.path(), MODULE, &mut lose).unwrap_err();
    assert!(failed.to_string().contains("change-00000000000000000001"), "{failed}");
    assert!(!copy.path().join(MODULE).join("change-00000000000000000000").exists());
    pull_all(&bucket, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3]), [None, Some(10), Some(10)]);
}

#[test]
fn links_in_a_cache_directory_lead_a_pull_nowhere() {
    for name in [".tcx-pull", MODULE] {
        let (server, one, outside, hostile) =
            (Server::start(), cache_of(10), cache_of(55), tempdir().unwrap());
        let bucket = bucket(&server, "p");
        push_all(one.path(), &bucket).unwrap();
        std::os::unix::fs::symlink(outside.path(), hostile.path().join(name)).unwrap();
        let before = std::fs::read_dir(outside.path()).unwrap().count();
        let refused = pull_all(&bucket, hostile.path()).unwrap_err();
        assert!(refused.to_string().contains("is a link, which could lead out of the cache"), "{refused}");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), before);
        assert_eq!(values(outside.path(), &[1, 2, 3]), [Some(55); 3]);
    }
}

#[test]
fn a_copy_in_which_a_change_was_repaired_is_not_copied_over_others() {
    let (server, one, other) = (Server::start(), cache_of(10), tempdir().unwrap());
    let bucket = bucket(&server, "p");
    for key in 100..106 {
        invalidate(one.path(), key);
    }
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let folder = one.path().join(MODULE);
    let change = folder.join("change-00000000000000000003");
    let mut bytes = std::fs::read(&change).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&change).unwrap();
    std::fs::write(&change, bytes).unwrap();
    let found = tcx_store::verify(&folder, &mut |_, _| {}).unwrap().damage;
    tcx_store::repair(&folder, &found, &mut |_, _| {}).unwrap();
    invalidate(one.path(), 200);
    compute(one.path(), &[9], 9);
    let refused = push_all(one.path(), &bucket).unwrap_err();
    assert!(refused.to_string().contains("change-00000000000000000003 differs"), "{refused}");
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 2, 3]), [Some(10); 3]);
}

#[test]
fn a_pull_is_refused_while_another_process_copies_there() {
    let (server, one, copy) = (Server::start(), cache_of(10), tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    let stage = copy.path().join(".tcx-pull").join(MODULE);
    std::fs::create_dir_all(&stage).unwrap();
    let held = std::fs::File::create(stage.join("lock")).unwrap();
    held.lock().unwrap();
    let refused = pull_all(&bucket, copy.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    assert!(refused.to_string().contains("another process copies `m_v1`"), "{refused}");
    held.unlock().unwrap();
    pull_all(&bucket, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3]), [Some(10); 3]);
}

/// Does something as soon as a copy is under way.
fn at_first(mut act: impl FnMut() + Send) -> impl FnMut(u64, u64) + Send {
    let mut is_first = true;
    move |_, _| {
        if std::mem::take(&mut is_first) {
            act();
        }
    }
}

/// A cache, a copy of it in a store, and a second one in a directory. The first has got a change since, and a row that counts on it; in a
/// segment of its own, or in one with older rows.
fn changed_since(server: &Server, is_joined: bool) -> (TempDir, TempDir) {
    let (one, other) = (cache_of(10), tempdir().unwrap());
    push_all(one.path(), &bucket(server, "p")).unwrap();
    pull_all(&bucket(server, "p"), other.path()).unwrap();
    invalidate(one.path(), 1);
    compute(one.path(), &[7], 70);
    if is_joined {
        open(one.path()).compact().unwrap();
    }
    (one, other)
}

#[test]
fn a_row_that_is_invalidated_in_a_store_while_it_is_sent_is_not_served_there() {
    for is_joined in [false, true] {
        let server = Server::start();
        let (one, other) = changed_since(&server, is_joined);
        let there = bucket(&server, "p");
        let mut invalidated = at_first(|| {
            // By a change of the number that the copy is about to send.
            invalidate(other.path(), 7);
            push_all(other.path(), &there).unwrap();
        });
        let refused = push(one.path(), &there, MODULE, &mut invalidated).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        let copy = tempdir().unwrap();
        pull_all(&there, copy.path()).unwrap();
        assert_eq!(values(copy.path(), &[1, 7]), [Some(10), None], "joined: {is_joined}");
    }
}

#[test]
fn a_row_that_is_invalidated_in_a_directory_while_it_is_received_is_not_served_there() {
    for is_joined in [false, true] {
        let server = Server::start();
        let (one, other) = changed_since(&server, is_joined);
        let there = bucket(&server, "p");
        push_all(one.path(), &there).unwrap();
        let mut invalidated = at_first(|| invalidate(other.path(), 7));
        let refused = pull(&there, other.path(), MODULE, &mut invalidated).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        assert_eq!(values(other.path(), &[1, 7]), [Some(10), None], "joined: {is_joined}");
    }
}

#[test]
fn nothing_is_left_in_a_module_that_took_the_place_of_another_while_rows_were_sent() {
    let (server, one, other) = (Server::start(), cache_of(10), tempdir().unwrap());
    let there = bucket(&server, "p");
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    invalidate(one.path(), 1);
    push_all(one.path(), &there).unwrap();
    compute(one.path(), &[7], 70);
    // An older copy comes, in which the change of the same number invalidates that row.
    invalidate(other.path(), 7);
    let mut replaced = at_first(|| {
        server.keys().iter().filter(|key| key.contains("/change-")).for_each(|key| server.remove(key));
        push_all(other.path(), &there).unwrap();
    });
    let refused = push(one.path(), &there, MODULE, &mut replaced).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    let copy = tempdir().unwrap();
    pull_all(&there, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 7]), [Some(10), None]);
}

#[test]
fn what_was_sent_stays_in_the_store_if_the_directory_is_gone_by_then() {
    let (server, one) = (Server::start(), cache_of(10));
    let there = bucket(&server, "p");
    let folder = one.path().join(MODULE);
    let progress = &mut |done: u64, total: u64| {
        if done > 0 && done == total {
            std::fs::remove_dir_all(&folder).unwrap();
        }
    };
    push(one.path(), &there, MODULE, progress).unwrap();
    let copy = tempdir().unwrap();
    pull_all(&there, copy.path()).unwrap();
    assert_eq!(values(copy.path(), &[1, 2, 3]), [Some(10); 3]);
}

#[test]
fn what_was_joined_from_rows_of_a_change_under_way_is_copied_after_it() {
    let (server, one, other) = (Server::start(), cache_of(10), tempdir().unwrap());
    let there = bucket(&server, "p");
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    replace(one.path(), 2, 20);
    let store = open(one.path());
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    push_all(one.path(), &there).unwrap();
    pull_all(&there, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 2, 3]), [Some(10), Some(20), Some(10)]);
}
