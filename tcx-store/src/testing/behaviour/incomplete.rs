//! Files that are not complete yet, or cannot be read for a moment: they hide rows that nothing displaces, and refuse nothing for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::RecomputeSession;
use crate::testing::{
    column, compute, go_ahead, keys, kill_z, names, process, put, replace, rewrite, seal_all, values,
    with_a_replacement, with_time_to_live, without_change,
};

/// Everything was invalidated once; later a change cannot be read for a moment.
#[test]
fn what_is_computed_while_an_unread_change_hides_a_value_does_not_displace_it_after_everything_was_invalidated()
 {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["w"], 1);
    store.flush().unwrap();
    store.invalidate_all().unwrap();
    assert_eq!(put(&store, "x", 1000).unwrap(), 1);
    store.flush().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let other = without_change(2, dir.path(), &fails);
    assert_eq!(values(&other, &["x"]), [1000]);
    fails.store(true, SeqCst);
    kill_z(&store);
    other.refresh().unwrap();
    compute(&other, &["x"], 7);
    fails.store(false, SeqCst);
    let flushed = other.flush();
    other.refresh().unwrap();
    other.compact().unwrap();
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || fresh == [1000], "flush {flushed:?}, fresh {fresh:?}");
}

/// A segment of another folder is not complete when it is met first (a copy under way).
#[test]
fn a_segment_of_another_cache_whose_copy_was_under_way_does_not_refuse_values_for_ever() {
    let (dir, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = process(foreign.path());
    compute(&other, &["q"], 3);
    seal_all(&other);
    let name = names(foreign.path(), "seg-").remove(0);
    let bytes = std::fs::read(foreign.path().join("m_v1").join(&name)).unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    seal_all(&store);
    let path = dir.path().join("m_v1").join(&name);
    rewrite(&path, &bytes[..bytes.len() - 4]);
    store.refresh().unwrap();
    assert!(put(&store, "y", 5).is_err());
    rewrite(&path, &bytes);
    for _ in 0..5 {
        store.refresh().unwrap();
    }
    // A process that meets it now takes no notice of it.
    let fresh = process(dir.path());
    assert_eq!(put(&fresh, "v", 5).unwrap(), 1);
    fresh.invalidate_where(|key| key == b"v").unwrap();
    let (done, invalidated) = (put(&store, "y", 5), store.invalidate_where(|key| key == b"y"));
    assert!(done.is_ok() && invalidated.is_ok(), "put {done:?}, invalidate_where {invalidated:?}");
}

/// A copy is under way, interrupted, and made again.
#[test]
fn a_segment_whose_copy_is_made_a_second_time_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes) = with_a_replacement(dir.path());
    rewrite(&path, &bytes[..bytes.len() - 4]);
    let other = process(dir.path());
    assert_eq!(values(&other, &["x"]), [-1]);
    std::fs::remove_file(&path).unwrap();
    other.refresh().unwrap();
    rewrite(&path, &bytes);
    other.refresh().unwrap();
    let own = values(&other, &["x"]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    other.compact().unwrap();
    drop(other);
    process(dir.path()).compact().unwrap();
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(own == [1000] && fresh == [1000], "own {own:?}, flush {flushed:?}, fresh {fresh:?}");
}

/// The index run of a segment is missing that is too old for this process.
#[test]
fn a_value_that_is_put_over_an_expired_row_without_an_index_run_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_time_to_live(dir.path(), None);
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y", "z"], 5);
    seal_all(&store);
    drop(store);
    for name in names(dir.path(), "run-") {
        std::fs::remove_file(dir.path().join("m_v1").join(name)).unwrap();
    }
    go_ahead(Duration::from_hours(5));
    let own = with_time_to_live(dir.path(), Some(Duration::from_hours(4)));
    assert_eq!(put(&own, "x", 7).unwrap(), 1);
    seal_all(&own);
    assert_eq!(values(&own, &["x"]), [7]);
    assert_eq!(values(&with_time_to_live(dir.path(), None), &["x"]), [7]);
}

/// The index run of a segment is missing that a change hides which cannot be read for a moment.
#[test]
fn what_is_computed_does_not_displace_a_hidden_value_that_has_no_index_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    assert_eq!(put(&store, "x", 1000).unwrap(), 1);
    seal_all(&store);
    kill_z(&store);
    drop(store);
    for name in names(dir.path(), "run-") {
        std::fs::remove_file(dir.path().join("m_v1").join(name)).unwrap();
    }
    let fails = Arc::new(AtomicBool::new(true));
    let other = without_change(1, dir.path(), &fails);
    compute(&other, &["x"], 7);
    fails.store(false, SeqCst);
    let flushed = other.flush();
    other.refresh().unwrap();
    other.compact().unwrap();
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || fresh == [1000], "flush {flushed:?}, fresh {fresh:?}");
}

/// Buffered rows are dropped for a change that looks damaged for a moment, and names another key; `flush` is Ok.
#[test]
fn rows_are_not_dropped_for_a_change_that_looks_damaged_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    compute(&store, &["w"], 1);
    seal_all(&store);
    compute(&other, &["x"], 7);
    kill_z(&store);
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let bytes = std::fs::read(&path).unwrap();
    let mut zeros = bytes.clone();
    zeros[60..].fill(0);
    rewrite(&path, &zeros);
    let flushed = other.flush();
    rewrite(&path, &bytes);
    drop(other);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(flushed.is_err() || fresh == [7], "flush {flushed:?}, fresh {fresh:?}");
}

/// A change is not complete when it is met first (a copy under way); once it is, the process goes on.
#[test]
fn a_process_that_has_met_a_change_whose_copy_was_under_way_goes_on_once_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (process(dir.path()), process(dir.path()));
    compute(&store, &["w"], 1);
    seal_all(&store);
    assert_eq!(values(&other, &["w"]), [1]);
    kill_z(&store);
    let path = dir.path().join("m_v1").join("change-00000000000000000001");
    let bytes = std::fs::read(&path).unwrap();
    rewrite(&path, &bytes[..bytes.len() - 4]);
    other.refresh().unwrap();
    rewrite(&path, &bytes);
    let (refreshed, flushed) = (other.refresh(), other.flush());
    let found = other.lookup(keys(&["w"])).map(|rows| rows.missing());
    assert!(
        refreshed.is_ok() && flushed.is_ok(),
        "refresh {refreshed:?}, flush {flushed:?}, lookup {found:?}"
    );
}

/// `replace` while a change looks damaged that has nothing to do with it.
#[test]
fn a_value_is_replaced_while_a_change_looks_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = with_a_replacement(dir.path());
    drop(path);
    let store = process(dir.path());
    kill_z(&store);
    let path = dir.path().join("m_v1").join("change-00000000000000000002");
    let bytes = std::fs::read(&path).unwrap();
    rewrite(&path, &bytes[..bytes.len() - 4]);
    let other = process(dir.path());
    let session = RecomputeSession::new();
    let mut rows = other.lookup_to_put(keys(&["x"]), Some(&session)).unwrap();
    other.insert(&mut rows, &[0], column(&[2000])).unwrap();
    other.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [2000]);
}

/// The tail of a segment is there before one of its blocks (a copy that is not written in order).
#[test]
fn what_is_computed_while_a_block_of_a_new_segment_is_not_there_yet_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids: Vec<String> = (0..30_000).map(|i| format!("key {i}")).chain(["x".into()]).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    compute(&store, &["x"], 1);
    seal_all(&store);
    let before = names(dir.path(), "seg-");
    let value = 0x1122_3344_5566_7788_i64;
    replace(&store, &RecomputeSession::new(), &ids, value);
    seal_all(&store);
    drop(store);
    let name = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    let path = dir.path().join("m_v1").join(name);
    let bytes = std::fs::read(&path).unwrap();
    let wanted = value.to_le_bytes();
    let at = bytes.windows(8).rposition(|own| own == wanted).unwrap();
    let mut incomplete = bytes.clone();
    incomplete[at - 60_000..at + 8].fill(0);
    rewrite(&path, &incomplete);
    let other = process(dir.path());
    assert_eq!(values(&other, &["x"]), [-1]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    drop(other);
    rewrite(&path, &bytes);
    let fresh = values(&process(dir.path()), &["x"]);
    process(dir.path()).compact().unwrap();
    let compacted = values(&process(dir.path()), &["x"]);
    assert!(
        flushed.is_err() || compacted == [value],
        "flush {flushed:?}, fresh {fresh:?}, compacted {compacted:?}, at {at} of {}",
        bytes.len()
    );
}
