//! A segment is cut short, and the whole one stays for a while: its other rows are dead beside values that are put in their place and after
//! they were invalidated, also for a process that cannot read the shorter segment.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::Store;
use crate::testing::{
    Fault, Faulty, compute, names, process, put, reader, seal_all, values, with_operations,
};

/// x = 1 and y = 1, of which only x stays in the shorter segment. Returns the process that has written it, which would remove the whole one
/// at its end, and one that cannot open the shorter one.
fn cut_short(dir: &Path) -> [Store; 2] {
    let writer = process(dir);
    compute(&writer, &["x", "y"], 1);
    seal_all(&writer);
    let whole = names(dir, "seg-");
    assert!(writer.trim_segment(&whole[0], 1).unwrap());
    assert_eq!(values(&writer, &["x", "y"]), [1, -1]);
    let cut = names(dir, "seg-").into_iter().find(|name| !whole.contains(name)).unwrap();
    let steps = Faulty::with(move |_, step, path: &Path| {
        let is_cut = path.file_name().is_some_and(|name| *name == *cut);
        (step == "open" && is_cut).then_some(Fault::Refused(ErrorKind::Other))
    });
    [writer, with_operations(dir, steps)]
}

#[test]
fn a_value_that_is_put_in_the_place_of_a_row_that_was_cut_off_is_the_only_one() {
    let dir = tempfile::tempdir().unwrap();
    let [other, failing] = cut_short(dir.path());
    put(&other, "y", 2).unwrap();
    seal_all(&other);
    for store in [&failing, &other, &reader(dir.path())] {
        assert_eq!(values(store, &["x", "y"]), [1, 2]);
    }
    // A row that no segment has is put as ever.
    other.collect(Duration::ZERO).unwrap();
    let changes = names(dir.path(), "change-").len();
    put(&other, "z", 3).unwrap();
    seal_all(&other);
    assert_eq!(names(dir.path(), "change-").len(), changes);
}

#[test]
fn rows_that_were_cut_off_are_invalidated_with_the_others() {
    let by_age = |store: &Store| store.invalidate_older_than(SystemTime::now() + Duration::from_mins(1));
    let by_key = |store: &Store| store.invalidate_where(|key| key == b"y");
    for (invalidate, left) in
        [(&by_age as &dyn Fn(&Store) -> crate::Result<()>, [-1, -1]), (&by_key, [1, -1])]
    {
        let dir = tempfile::tempdir().unwrap();
        let [other, failing] = cut_short(dir.path());
        invalidate(&other).unwrap();
        for store in [&failing, &other, &reader(dir.path())] {
            assert_eq!(values(store, &["x", "y"]), left);
        }
    }
}
