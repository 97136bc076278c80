//! Making room removes what a user has confirmed, and no segment more.

use std::path::Path;

use crate::testing::{compute, go_ahead, module, process, seal_all, values};
use crate::{Inspection, Store};

const XYZ: [&str; 3] = ["x", "y", "z"];

/// A segment of many rows for each of the keys, one a minute.
fn fill(dir: &Path) -> Store {
    let store = process(dir);
    for (number, key) in XYZ.into_iter().enumerate() {
        go_ahead(std::time::Duration::from_mins(number as u64));
        let others: Vec<String> = (0..200).map(|other| format!("{key} {other}")).collect();
        let keys: Vec<&str> = others.iter().map(String::as_str).chain([key]).collect();
        compute(&store, &keys, 1);
        seal_all(&store);
    }
    store
}

#[test]
fn room_of_the_size_of_the_oldest_segments_is_made_by_these_alone() {
    for count in 0..=3 {
        let dir = tempfile::tempdir().unwrap();
        let store = fill(dir.path());
        let inspection = Inspection::open(&module(dir.path())).unwrap();
        let mut segments: Vec<_> = inspection.segments().map(|own| (own.born, own.bytes)).collect();
        segments.sort_unstable();
        store.make_room(segments.iter().take(count).map(|(_, bytes)| bytes).sum()).unwrap();
        let left: Vec<i64> = (0..3).map(|number| if number < count { -1 } else { 1 }).collect();
        assert_eq!(values(&store, &XYZ), left, "{count} segments go");
    }
}
