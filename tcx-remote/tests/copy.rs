//! Modules that are copied to a store and back, whatever fails on the way.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
#[path = "support/copies.rs"]
mod copies;
mod support;

use std::io::ErrorKind;
use std::time::Duration;

use buckets::bucket;
use copies::{MODULE, compute, invalidate, open, pull_all, push_all, values};
use tcx_remote::{modules, push};
use tcx_test_s3::{Fault, Operation, Server};

/// A cache with a module of three segments, in which a row was invalidated.
fn cache() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    compute(dir.path(), &[1, 2, 3], 10);
    compute(dir.path(), &[4, 5], 20);
    invalidate(dir.path(), 2);
    compute(dir.path(), &[6], 30);
    dir
}

#[test]
fn a_module_that_is_pushed_and_pulled_has_the_same_rows() {
    let (server, source, target) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    let mut progress = Vec::new();
    let pushed =
        push(source.path(), &bucket, MODULE, &mut |done, total| progress.push((done, total))).unwrap();
    assert!(pushed.files > 4 && pushed.left_out.is_empty(), "{pushed:?}");
    let (done, total) = *progress.last().unwrap();
    assert!(done == total && total > 0 && progress[0] == (0, total));
    assert_eq!(modules(&bucket).unwrap(), [MODULE]);
    let pulled = pull_all(&bucket, target.path()).unwrap();
    assert_eq!((pulled.files, pulled.bytes), (pushed.files, pushed.bytes));
    for dir in [&source, &target] {
        let found = values(dir.path(), &[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(found, [Some(10), None, Some(10), Some(20), Some(20), Some(30), None]);
    }
    let verified = tcx_store::verify(&target.path().join(MODULE), &mut |_, _| {}).unwrap();
    assert!(verified.damage.is_empty() && verified.foreign.is_empty());
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 1, "nothing else is left");
    // Again, there is nothing to do.
    assert_eq!(push_all(source.path(), &bucket).unwrap().files, 0);
    assert_eq!(pull_all(&bucket, target.path()).unwrap().files, 0);
}

#[test]
fn what_came_since_is_copied_in_both_directions() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    compute(one.path(), &[7], 40);
    invalidate(one.path(), 4);
    compute(other.path(), &[8], 50);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    push_all(other.path(), &bucket).unwrap();
    pull_all(&bucket, one.path()).unwrap();
    for dir in [&one, &other] {
        assert_eq!(values(dir.path(), &[1, 4, 5, 7, 8]), [Some(10), None, Some(20), Some(40), Some(50)]);
    }
}

#[test]
fn changes_that_a_directory_has_are_not_received_again() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    (100..110).for_each(|key| invalidate(one.path(), key));
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let before = server.counts().gets;
    pull_all(&bucket, other.path()).unwrap();
    // The first and the newest one are compared.
    assert_eq!(server.counts().gets - before, 2);
    invalidate(one.path(), 4);
    compute(one.path(), &[7], 40);
    push_all(one.path(), &bucket).unwrap();
    let before = server.counts().gets;
    let files = pull_all(&bucket, other.path()).unwrap().files;
    assert_eq!(server.counts().gets - before, 2 + files);
    // One that is damaged there is received, because segments are verified beside it.
    let change = other.path().join(MODULE).join("change-00000000000000000005");
    let mut bytes = std::fs::read(&change).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&change).unwrap();
    std::fs::write(&change, &bytes).unwrap();
    let before = server.counts().gets;
    assert_eq!(pull_all(&bucket, other.path()).unwrap().left_out, []);
    assert_eq!(server.counts().gets - before, 3);
    std::fs::remove_dir_all(other.path().join(MODULE)).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 4, 5, 7]), [Some(10), None, Some(20), Some(40)]);
}

#[test]
fn segments_that_were_joined_in_one_copy_are_no_duplicates_in_the_other() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let store = open(one.path());
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    drop(store);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 2, 6]), [Some(10), None, Some(30)]);
    let store = open(other.path());
    assert_eq!(store.stats().segments, 1);
}

#[test]
fn a_copy_that_was_interrupted_is_continued_and_no_older_segment_comes_before_a_change() {
    let (server, source, target) =
        (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    compute(source.path(), &[1, 2, 3], 10);
    compute(source.path(), &[4, 5], 20);
    invalidate(source.path(), 2);
    let options = support::options(&server).deadline(Duration::from_millis(300));
    let bucket = buckets::bucket_with(&server.url("p"), options);
    let total = push_all(source.path(), &buckets::bucket(&server, "elsewhere")).unwrap().files;
    for _ in 0..8 {
        server.fail_next(Operation::Put, "p/m_v1/seg-", Fault::Denied);
    }
    push_all(source.path(), &bucket).unwrap_err();
    let changes = server.keys().iter().filter(|key| key.starts_with("p/m_v1/change-")).count();
    assert_eq!(changes, 2);
    server.fail(|faults| faults.permille.clear());
    let mut files = 1;
    // Denials that were not met are left for the next try.
    while let Err(error) = push_all(source.path(), &bucket).map(|copied| files = copied.files) {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    assert!(files < total, "changes are not copied twice");
    let bucket = buckets::bucket(&server, "p");
    server.fail_next(Operation::Get, "seg-", Fault::Denied);
    pull_all(&bucket, target.path()).unwrap_err();
    assert!(!target.path().join(MODULE).exists(), "nothing has its name before it is verified");
    pull_all(&bucket, target.path()).unwrap();
    assert_eq!(values(target.path(), &[1, 2, 5]), [Some(10), None, Some(20)]);
}

#[test]
fn a_store_that_fails_now_and_then_gets_and_gives_a_whole_copy() {
    let (server, source, target) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    server.fail(|faults| {
        let kinds = [Fault::Before, Fault::After, Fault::Throttled, Fault::Conflict, Fault::Cut];
        faults.permille = kinds.map(|kind| (kind, 60)).to_vec();
    });
    let bucket = bucket(&server, "p");
    push_all(source.path(), &bucket).unwrap();
    pull_all(&bucket, target.path()).unwrap();
    assert_eq!(values(target.path(), &[1, 2, 3, 6]), [Some(10), None, Some(10), Some(30)]);
}

#[test]
fn a_damaged_download_is_fetched_again_and_a_damaged_object_is_left_out() {
    let (server, source, target) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(source.path(), &bucket).unwrap();
    for name in ["seg-", "change-00000000000000000001"] {
        server.fail_next(Operation::Get, name, Fault::Flipped);
        let copied = pull_all(&bucket, target.path()).unwrap();
        assert!(copied.left_out.is_empty(), "{copied:?}");
        assert_eq!(values(target.path(), &[1, 2, 6]), [Some(10), None, Some(30)]);
        std::fs::remove_dir_all(target.path().join(MODULE)).unwrap();
    }
    assert_eq!(server.planned(), 0);
    let segment = server.keys().into_iter().find(|key| key.contains("seg-")).unwrap();
    let mut bytes = server.object(&segment).unwrap();
    bytes[200] ^= 1;
    server.put(&segment, &bytes);
    let copied = pull_all(&bucket, target.path()).unwrap();
    assert_eq!(copied.left_out.len(), 1, "{copied:?}");
    assert_eq!(values(target.path(), &[1, 4, 6]).iter().flatten().count(), 2);
    let change = "p/m_v1/change-00000000000000000001";
    let mut bytes = server.object(change).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    server.put(change, &bytes);
    let error = pull_all(&bucket, tempfile::tempdir().unwrap().path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("is damaged"), "{error}");
}

#[test]
fn damage_is_not_copied_to_a_store() {
    let (server, source) = (Server::start(), cache());
    let bucket = bucket(&server, "p");
    let folder = source.path().join(MODULE);
    let damage = |part: &str| {
        let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let path = names.into_iter().find(|path| path.to_str().unwrap().contains(part)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    };
    damage("seg-");
    let copied = push_all(source.path(), &bucket).unwrap();
    assert_eq!(copied.left_out.len(), 1, "{copied:?}");
    assert_eq!(server.keys().iter().filter(|key| key.contains("seg-")).count(), 2);
    damage("change-00000000000000000001");
    let error = push_all(source.path(), &bucket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("tcx verify --repair"), "{error}");
}

#[test]
fn copies_that_were_changed_on_both_sides_are_refused_before_any_segment_is_copied() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    invalidate(one.path(), 4);
    push_all(one.path(), &bucket).unwrap();
    invalidate(other.path(), 5);
    // Its base is the number of the other change.
    compute(other.path(), &[4, 9], 90);
    let before = server.keys();
    for refused in
        [push_all(other.path(), &bucket).unwrap_err(), pull_all(&bucket, other.path()).unwrap_err()]
    {
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        assert!(refused.to_string().contains("tcx merge"), "{refused}");
    }
    assert_eq!(server.keys(), before);
    assert_eq!(values(other.path(), &[4]), [Some(20)], "its own invalidation named another row");
    let another = cache();
    let refused = push_all(another.path(), &bucket).unwrap_err();
    assert!(refused.to_string().contains("another cache of this name"), "{refused}");
    assert_eq!(server.keys(), before);
}

#[test]
fn a_change_that_another_machine_creates_meanwhile_is_not_replaced() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    invalidate(one.path(), 4);
    invalidate(other.path(), 5);
    let found: Vec<_> = std::thread::scope(|scope| {
        let push = |dir: &tempfile::TempDir| {
            let (path, bucket) = (dir.path().to_owned(), bucket.clone());
            scope.spawn(move || push_all(&path, &bucket).map_err(|error| error.kind()))
        };
        let both = [push(&one), push(&other)];
        both.into_iter().map(|own| own.join().unwrap()).collect()
    });
    let refused = found.iter().filter(|found| **found == Err(ErrorKind::AlreadyExists)).count();
    assert_eq!(refused, 1, "{found:?}");
}

#[test]
fn nothing_is_copied_to_a_store_that_ignores_conditions_or_from_a_part_of_a_copy() {
    let (server, source) = (Server::start(), cache());
    let bucket = bucket(&server, "p");
    server.fail(|faults| faults.ignores_conditions = true);
    assert_eq!(push_all(source.path(), &bucket).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(server.keys(), Vec::<String>::new());
    server.fail(|faults| faults.ignores_conditions = false);
    assert_eq!(pull_all(&bucket, source.path()).unwrap_err().kind(), ErrorKind::NotFound);
    push_all(source.path(), &bucket).unwrap();
    invalidate(source.path(), 4);
    push_all(source.path(), &bucket).unwrap();
    server.remove("p/m_v1/change-00000000000000000001");
    let error = pull_all(&bucket, tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(error.to_string().contains("change-00000000000000000001 is missing"), "{error}");
}

#[test]
fn a_directory_with_newer_changes_than_the_store_is_pulled_to() {
    let (server, one, other) = (Server::start(), cache(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    invalidate(other.path(), 1);
    compute(one.path(), &[7], 40);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 3, 7]), [None, Some(10), Some(40)]);
    push_all(other.path(), &bucket).unwrap();
    pull_all(&bucket, one.path()).unwrap();
    assert_eq!(values(one.path(), &[1, 3, 7]), [None, Some(10), Some(40)]);
}
