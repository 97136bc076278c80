//! Rows are evicted or pruned in one copy of a module, and files are copied in both directions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "support/buckets.rs"]
mod buckets;
#[path = "support/copies.rs"]
mod copies;
mod support;

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use buckets::bucket;
use copies::{MODULE, compute, invalidate, open, pull_all, push_all, values};
use tcx_store::{Column, Inspection, Keys};
use tcx_test_s3::Server;

fn put(dir: &Path, key: i64, value: i64) {
    let store = open(dir);
    let mut rows = store.lookup_to_put(Keys::ints([key], 0), None).unwrap();
    assert_eq!(rows.missing(), 1, "it has no value");
    let values: Vec<u8> = (0..16).flat_map(|_| value.to_le_bytes()).collect();
    store.insert(&mut rows, &[0], vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
}

/// The values of these keys, and how many rows of them are there.
fn found(dir: &Path, keys: &[i64]) -> (Vec<Option<i64>>, usize) {
    let mut count = 0;
    let is_asked = |own: &[u8]| keys.iter().any(|key| own == key.to_le_bytes());
    open(dir).each_key(|own, _| count += usize::from(is_asked(own))).unwrap();
    (values(dir, keys), count)
}

fn join(dir: &Path) {
    let store = open(dir);
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
}

fn segments(dir: &Path) -> Vec<String> {
    let module = Inspection::open(&dir.join(MODULE)).unwrap();
    module.segments().map(|segment| segment.name.clone()).collect()
}

#[test]
fn evicted_rows_do_not_come_back_beside_values_put_since() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    let evicted = segments(one.path());
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    open(one.path()).make_room(1).unwrap();
    put(one.path(), 1, 20);
    push_all(one.path(), &bucket).unwrap();
    let new = tempfile::tempdir().unwrap();
    for dir in [&one, &other, &new] {
        pull_all(&bucket, dir.path()).unwrap();
        assert_eq!(found(dir.path(), &[1]), (vec![Some(20)], 1));
    }
    // What is dead is not received; where it is, it is collected.
    for dir in [&one, &new] {
        assert!(!segments(dir.path()).contains(&evicted[0]));
    }
    open(other.path()).collect(Duration::ZERO).unwrap();
    assert!(!segments(other.path()).contains(&evicted[0]));
}

#[test]
fn evicted_rows_do_not_come_back_after_all_that_was_found_was_invalidated() {
    let (server, one) = (Server::start(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    push_all(one.path(), &bucket).unwrap();
    open(one.path()).make_room(1).unwrap();
    open(one.path()).invalidate_where(|_| true).unwrap();
    // Before the store has the eviction, and after it.
    for pushes in [false, true] {
        if pushes {
            push_all(one.path(), &bucket).unwrap();
        }
        pull_all(&bucket, one.path()).unwrap();
        assert_eq!(values(one.path(), &[1]), [None], "pushed: {pushes}");
    }
}

#[test]
fn rows_that_were_pruned_do_not_come_back_where_the_longer_segment_is_left() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1, 2], 10);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let [name] = &segments(one.path())[..] else { panic!() };
    assert!(open(one.path()).trim_segment(name, 1).unwrap());
    open(one.path()).collect(Duration::ZERO).unwrap();
    put(one.path(), 2, 20);
    join(one.path());
    assert_eq!(found(one.path(), &[1, 2]), (vec![Some(10), Some(20)], 2));
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(found(other.path(), &[1, 2]), (vec![Some(10), Some(20)], 2));
    invalidate(other.path(), 2);
    assert_eq!(found(other.path(), &[1, 2]), (vec![Some(10), None], 1));
}

#[test]
fn a_segment_that_was_joined_from_no_evicted_rows_stays_in_every_copy() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let evicted = segments(one.path());
    for key in [2, 3] {
        compute(other.path(), &[key], 10);
    }
    // Only these two: the first is left as it is, as one that was just collected elsewhere.
    let apart = tempfile::tempdir().unwrap();
    let of_one = |dir: &Path| dir.join(MODULE).join(&evicted[0]);
    std::fs::rename(of_one(other.path()), apart.path().join("kept")).unwrap();
    join(other.path());
    std::fs::rename(apart.path().join("kept"), of_one(other.path())).unwrap();
    // The rows of the evicted segment are younger than the joined ones, as far as the eviction can say.
    compute(one.path(), &[4], 10);
    let store = open(one.path());
    while values(one.path(), &[1, 4]) != [None, None] {
        store.make_room(1).unwrap();
    }
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    assert_eq!(values(other.path(), &[1, 2, 3]), [None, Some(10), Some(10)]);
}

#[test]
fn a_copy_is_refused_that_would_lose_rows_because_they_were_joined_with_evicted_ones() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    compute(other.path(), &[2], 20);
    join(other.path());
    open(one.path()).make_room(1).unwrap();
    push_all(one.path(), &bucket).unwrap();
    let refused = pull_all(&bucket, other.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let expected = format!("the rows of {} would be lost", segments(other.path())[0]);
    assert!(refused.to_string().contains(&expected), "{refused}");
    assert_eq!(values(other.path(), &[1, 2]), [Some(10), Some(20)], "nothing has changed");
    // The store would have them, and they would be dead.
    let refused = push_all(other.path(), &bucket).unwrap_err();
    assert!(refused.to_string().contains(&expected), "{refused}");
}

#[test]
fn a_joined_segment_is_not_received_by_a_copy_that_has_evicted_rows_of_it() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    compute(other.path(), &[2], 20);
    join(other.path());
    push_all(other.path(), &bucket).unwrap();
    open(one.path()).make_room(1).unwrap();
    let joined = &segments(other.path())[0];
    let refused = pull_all(&bucket, one.path()).unwrap_err();
    let expected = format!("the rows of {joined} would be lost");
    assert!(refused.to_string().contains(&expected), "{refused}");
    assert_eq!(values(one.path(), &[1, 2]), [None, None]);
    // The eviction would kill it in the store.
    let refused = push_all(one.path(), &bucket).unwrap_err();
    assert!(
        refused.to_string().contains(&format!("the store has {joined}, which is not known here")),
        "{refused}"
    );
    let new = tempfile::tempdir().unwrap();
    pull_all(&bucket, new.path()).unwrap();
    assert_eq!(values(new.path(), &[1, 2]), [Some(10), Some(20)]);
}

#[test]
fn a_directory_that_evicts_its_oldest_rows_is_pushed_again_and_again() {
    let (server, one) = (Server::start(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    for key in 0..6 {
        for key in [10 * key, 10 * key + 1] {
            compute(one.path(), &[key], key);
            push_all(one.path(), &bucket).unwrap();
        }
        join(one.path());
        open(one.path()).make_room(1).unwrap();
        push_all(one.path(), &bucket).unwrap();
    }
    let new = tempfile::tempdir().unwrap();
    pull_all(&bucket, new.path()).unwrap();
    assert_eq!(values(new.path(), &[0, 1, 10, 50, 51]), [None; 5]);
}

#[test]
fn young_rows_that_were_invalidated_with_old_ones_do_not_come_back_by_a_copy() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    std::thread::sleep(Duration::from_millis(30));
    let between = std::time::SystemTime::now();
    std::thread::sleep(Duration::from_millis(30));
    compute(one.path(), &[2], 10);
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    join(one.path());
    open(one.path()).invalidate_older_than(between).unwrap();
    assert_eq!(values(one.path(), &[1, 2]), [None, None], "they are in one segment");
    put(one.path(), 2, 20);
    push_all(one.path(), &bucket).unwrap();
    let new = tempfile::tempdir().unwrap();
    for dir in [&one, &other, &new] {
        pull_all(&bucket, dir.path()).unwrap();
        assert_eq!(found(dir.path(), &[1, 2]), (vec![None, Some(20)], 1));
    }
}

#[test]
fn evicted_rows_are_not_sent_again_by_a_directory_that_still_has_their_file() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    compute(one.path(), &[1], 10);
    let evicted = segments(one.path());
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    open(other.path()).make_room(1).unwrap();
    push_all(other.path(), &bucket).unwrap();
    server.remove(&format!("p/{MODULE}/{}", evicted[0]));
    // Before it knows of the eviction, and after it.
    for pulls in [false, true] {
        if pulls {
            pull_all(&bucket, one.path()).unwrap();
        }
        push_all(one.path(), &bucket).unwrap();
        assert_eq!(of_kind(&server, "/seg-"), [""; 0], "pulled: {pulls}");
    }
}

/// The objects whose names contain this.
fn of_kind(server: &Server, part: &str) -> Vec<String> {
    server.keys().into_iter().filter(|key| key.contains(part)).collect()
}

#[test]
fn what_was_joined_is_copied_in_no_direction_again() {
    let (server, one, other) = (Server::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bucket = bucket(&server, "p");
    for key in [1, 2, 3] {
        compute(one.path(), &[key], 10);
    }
    push_all(one.path(), &bucket).unwrap();
    pull_all(&bucket, other.path()).unwrap();
    let before = of_kind(&server, "/seg-");
    join(one.path());
    // Only the joined segment goes there, and none of what it is made of comes back.
    push_all(one.path(), &bucket).unwrap();
    assert_eq!(of_kind(&server, "/seg-").len(), before.len() + 1);
    assert_eq!(pull_all(&bucket, one.path()).unwrap().files, 0);
    assert_eq!(segments(one.path()).len(), 1);
    // Where they are still, and the store has them no more, they stay here.
    pull_all(&bucket, other.path()).unwrap();
    for key in &before {
        server.remove(key);
    }
    assert_eq!(push_all(other.path(), &bucket).unwrap().files, 0);
    assert_eq!(found(other.path(), &[1, 2, 3]), (vec![Some(10); 3], 3));
    let new = tempfile::tempdir().unwrap();
    pull_all(&bucket, new.path()).unwrap();
    assert_eq!(found(new.path(), &[1, 2, 3]), (vec![Some(10); 3], 3));
    assert_eq!(of_kind(&server, "/run-"), [""; 0]);
}
