//! Values that are put, and rows that are computed, while others cannot be served: none of those lives on beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::changes::Doomed;
use crate::testing::{
    compute, go_ahead, is_damaged_for_good, keys, make_older, names, process, put, seal_all, values,
    with_time_to_live, without_change,
};

/// A change cannot be read for a moment, which names another key.
#[test]
fn no_value_is_put_over_one_that_an_unread_change_hides() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    assert_eq!(put(&store, "x", 1000).unwrap(), 1);
    store.flush().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let other = without_change(1, dir.path(), &fails);
    assert_eq!(values(&other, &["x"]), [1000]);
    fails.store(true, SeqCst);
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
    other.refresh().unwrap();
    let done = put(&other, "x", 5);
    fails.store(false, SeqCst);
    other.flush().unwrap();
    other.compact().unwrap();
    assert!(matches!(done, Err(_) | Ok(0)), "{done:?}");
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}

/// The value that was put is displaced by a computed one; in the buffer, and sealed.
#[test]
fn what_is_computed_while_an_unread_change_hides_a_value_that_was_put_does_not_displace_it() {
    for sealed in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["w"], 1);
        store.flush().unwrap();
        let fails = Arc::new(AtomicBool::new(false));
        let other = without_change(1, dir.path(), &fails);
        assert_eq!(put(&other, "x", 1000).unwrap(), 1);
        if sealed {
            other.flush().unwrap();
        }
        fails.store(true, SeqCst);
        store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
        other.refresh().unwrap();
        compute(&other, &["x"], 7);
        fails.store(false, SeqCst);
        let flushed = other.flush();
        other.refresh().unwrap();
        other.compact().unwrap();
        assert!(flushed.is_err() || values(&process(dir.path()), &["x"]) == [1000], "sealed {sealed}");
    }
}

/// An invalidated row in a younger segment hides that the row of an older one is only too old for this process.
#[test]
fn a_value_that_is_put_over_an_expired_row_takes_its_place_though_an_earlier_row_was_invalidated() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (with_time_to_live(dir.path(), None), with_time_to_live(dir.path(), None));
    go_ahead(Duration::from_secs(1));
    compute(&one, &["y", "z"], 5);
    go_ahead(Duration::from_hours(1));
    compute(&two, &["x"], 3);
    seal_all(&two);
    two.invalidate(&keys(&["x"])).unwrap();
    one.refresh().unwrap();
    compute(&one, &["x"], 5);
    seal_all(&one);
    go_ahead(Duration::from_hours(4) + Duration::from_mins(30));
    let own = with_time_to_live(dir.path(), Some(Duration::from_hours(4)));
    assert_eq!(put(&own, "x", 7).unwrap(), 1);
    seal_all(&own);
    assert_eq!(values(&own, &["x"]), [7]);
    assert_eq!(values(&with_time_to_live(dir.path(), None), &["x"]), [7]);
}

/// The row becomes too old while it is on its way to the disk.
#[test]
fn a_value_that_is_put_over_a_row_that_expires_on_its_way_to_the_disk_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(with_time_to_live(dir.path(), Some(Duration::from_hours(4))));
    go_ahead(Duration::from_secs(1));
    compute(&store, &["x", "y", "z"], 5);
    store.core.buffer.freeze();
    let generation = store.core.buffer.oldest_after(None).unwrap();
    let written = crate::write::generation::write(&store.core, &generation).unwrap();
    go_ahead(Duration::from_hours(5));
    assert_eq!(put(&store, "x", 7).unwrap(), 1);
    crate::write::generation::publish(&store.core, &generation, written).unwrap();
    drop(generation);
    seal_all(&store);
    assert_eq!(values(&store, &["x"]), [7]);
    assert_eq!(values(&with_time_to_live(dir.path(), None), &["x"]), [7]);
}

/// A block of another row is damaged; the row itself is not.
#[test]
fn a_value_that_is_put_while_its_segment_is_out_of_service_takes_the_place_of_the_one_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids: Vec<String> = (0..30_000).map(|i| format!("key {i}")).chain(["x".into()]).collect();
    let ids: Vec<&str> = ids.iter().rev().map(String::as_str).collect();
    compute(&store, &ids, 5);
    compute(&store, &["y"], 0x1122_3344_5566_7788);
    store.flush().unwrap();
    drop(store);
    let path = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let wanted = 0x1122_3344_5566_7788_i64.to_le_bytes();
    let at = bytes.windows(8).position(|own| own == wanted).unwrap();
    bytes[at] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    make_older(dir.path(), "seg-");
    let store = process(dir.path());
    assert_eq!(values(&store, &["x"]), [5]);
    is_damaged_for_good(&store, &["y"]);
    let done = put(&store, "x", 7);
    store.flush().unwrap();
    drop(store);
    let fresh = values(&process(dir.path()), &["x"]);
    assert!(done.is_err() || fresh == [7], "fresh {fresh:?}");
}
