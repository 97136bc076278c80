//! A segment that is cut short serves its first rows; the others are misses, in every process and after every restart.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::testing::{
    Fault, Faulty, compute, keys, names, process, reader, seal_all, values, with_operations,
};
use crate::{
    Column, ColumnType, Compression, DType, Field, Identity, Inspection, KeyType, Keys, Options, Spec, Store,
};

const ABCD: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn the_first_rows_of_a_trimmed_segment_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, other) = (process(dir.path()), process(dir.path()));
    compute(&writer, &ABCD, 7);
    seal_all(&writer);
    let whole = &names(dir.path(), "seg-")[0];
    assert_eq!(values(&other, &ABCD), [7; 4]);
    assert!(writer.trim_segment(whole, 3).unwrap());
    for store in [&writer, &other, &process(dir.path()), &reader(dir.path())] {
        assert_eq!(values(store, &ABCD), [7, 7, 7, -1]);
    }
    assert_eq!(names(dir.path(), "seg-").len(), 2, "the input stays for a while");
    writer.collect(Duration::ZERO).unwrap();
    assert_eq!(names(dir.path(), "seg-").len(), 1);
    assert!(!names(dir.path(), "seg-").contains(whole));
    assert_eq!(names(dir.path(), "run-").len(), 1, "the index of the whole segment is gone");
    compute(&writer, &["d"], 8);
    writer.flush().unwrap();
    for store in [&writer, &other, &process(dir.path()), &reader(dir.path())] {
        assert_eq!(values(store, &ABCD), [7, 7, 7, 8]);
        assert_eq!(store.stats().damaged_segments, 0);
    }
}

#[test]
fn dead_rows_are_not_among_those_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    compute(&writer, &ABCD, 7);
    seal_all(&writer);
    writer.invalidate(&keys(&["a", "c"])).unwrap();
    assert!(writer.trim_segment(&names(dir.path(), "seg-")[0], 1).unwrap());
    writer.collect(Duration::ZERO).unwrap();
    assert_eq!(values(&process(dir.path()), &ABCD), [-1, 7, -1, -1]);
}

#[test]
fn the_newest_rows_of_a_joined_segment_stay() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    for (value, key) in ABCD.into_iter().enumerate() {
        compute(&writer, &[key], value as i64);
        seal_all(&writer);
        // Segments come in the order of their age, which is known in milliseconds.
        std::thread::sleep(Duration::from_millis(3));
    }
    writer.compact().unwrap();
    writer.collect(Duration::ZERO).unwrap();
    assert!(writer.trim_segment(&names(dir.path(), "seg-")[0], 2).unwrap());
    assert_eq!(values(&process(dir.path()), &ABCD), [-1, -1, 2, 3]);
}

#[test]
fn a_segment_that_is_gone_or_short_enough_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    compute(&writer, &ABCD, 7);
    seal_all(&writer);
    let whole = &names(dir.path(), "seg-")[0];
    assert!(!writer.trim_segment(whole, 4).unwrap(), "it has no more rows");
    assert!(!writer.trim_segment(whole, 0).unwrap(), "a segment without rows is not written");
    assert!(writer.trim_segment(whole, 2).unwrap());
    assert!(!writer.trim_segment(whole, 1).unwrap(), "it was replaced");
    assert_eq!(values(&process(dir.path()), &ABCD), [7, 7, -1, -1]);
    let error = writer.trim_segment("change-00000000000000000000", 1).unwrap_err();
    assert!(error.to_string().contains("is not the name of a segment"), "{error}");
    assert!(reader(dir.path()).trim_segment(whole, 1).is_err());
}

#[test]
fn a_segment_that_a_killed_process_was_about_to_trim_is_served_and_neither_trimmed_nor_joined_but_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    for key in ABCD {
        compute(&writer, &[key, &format!("{key}2")], 7);
        seal_all(&writer);
    }
    let segment = names(dir.path(), "seg-")[0].clone();
    let module = dir.path().join("m_v1");
    let fitting = || Inspection::open(&module).unwrap().rows_within(&segment, 1 << 20);
    assert_eq!(fitting(), 2);
    let is_named =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
    let dies = Faulty::with(move |_, step, path: &Path| {
        (step == "rename" && is_named(path)).then_some(Fault::Refused(ErrorKind::Other))
    });
    with_operations(dir.path(), dies).trim_segment(&segment, 1).unwrap_err();
    assert_eq!(fitting(), 0);
    let other = process(dir.path());
    assert!(!other.trim_segment(&segment, 1).unwrap());
    other.compact().unwrap();
    other.collect(Duration::ZERO).unwrap();
    let left = names(dir.path(), "seg-");
    assert!(left.len() == 2 && left.contains(&segment), "{left:?}");
    assert_eq!(values(&other, &ABCD), [7; 4]);
    other.make_room(u64::MAX).unwrap();
    assert_eq!(names(dir.path(), "seg-"), [""; 0]);
}

const OUTPUT: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[64] } },
    Field { name: "caption", column: ColumnType::Text },
]);

/// Rows of very different lengths: the first half has the longer ones.
fn fill(store: &Store, rows: usize) {
    let ids: Vec<String> = (0..rows).map(|row| row.to_string()).collect();
    let mut lookup = store.lookup(Keys::text(&ids, 0).unwrap()).unwrap();
    let positions: Vec<usize> = (0..rows).collect();
    let noise = (0..rows * 64).map(|at| ((at * 2_654_435_761) % 65_521) as f32);
    let captions = (0..rows).map(|row| "x".repeat(if row < rows / 2 { 300 } else { 3 }));
    let vectors: Vec<u8> = noise.flat_map(f32::to_le_bytes).collect();
    store.insert(&mut lookup, &positions, vec![Column::dense(&vectors), Column::text(captions)]).unwrap();
    store.flush().unwrap();
}

#[test]
fn the_rows_that_are_said_to_fit_fill_the_room() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new()).unwrap();
        let options = Options { compression, ..Options::default() };
        let store = Store::open(dir.path(), spec, &options).unwrap();
        fill(&store, 2000);
        let module = dir.path().join("m_v1");
        let segment = Inspection::open(&module).unwrap().segments().next().unwrap().clone();
        for percent in [75, 40, 10] {
            let room = segment.bytes * percent / 100;
            let inspection = Inspection::open(&module).unwrap();
            let own = inspection.segments().find(|own| own.rows > 0).unwrap().clone();
            let rows = inspection.rows_within(&own.name, room);
            assert!(store.trim_segment(&own.name, rows).unwrap());
            store.collect(Duration::ZERO).unwrap();
            let inspection = Inspection::open(&module).unwrap();
            let left: Vec<_> = inspection.segments().collect();
            assert_eq!((left.len(), left[0].rows), (1, rows));
            let filled = left[0].bytes as f64 / room as f64;
            let fits = if compression == Compression::None { 0.6..=1.0 } else { 0.6..=1.2 };
            assert!(fits.contains(&filled), "{compression:?}, {percent} %: {filled}");
        }
    }
}

/// The bytes of the index runs in the folder.
fn index_bytes(dir: &std::path::Path) -> u64 {
    let runs = names(dir, "run-").into_iter();
    runs.map(|name| std::fs::metadata(dir.join("m_v1").join(name)).unwrap().len()).sum()
}

/// Three segments with 200 of these rows each, and one index run. The value of a row is that of the number of its segment.
pub(super) fn three_segments(value: impl Fn(i64) -> i64) -> (tempfile::TempDir, Vec<&'static str>) {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<&str> = (0..600).map(|row: i32| &*row.to_string().leak()).collect();
    let writer = process(dir.path());
    for (segment, part) in (0..).zip(ids.chunks(200)) {
        compute(&writer, part, value(segment));
        seal_all(&writer);
        std::thread::sleep(Duration::from_millis(3));
    }
    // It is merged when the writer ends.
    drop(writer);
    (dir, ids)
}

#[test]
fn a_trimmed_index_leads_to_the_rows_that_are_left_and_other_processes_leave_it_alone() {
    let (dir, ids) = three_segments(|segment| segment);
    let evicting = process(dir.path());
    let with_all = process(dir.path());
    assert_eq!(values(&with_all, &ids[..1]), [0]);
    evicting.make_room(1).unwrap();
    drop(evicting);
    let (with_two, writer) = (process(dir.path()), process(dir.path()));
    assert_eq!(values(&with_two, &ids[..1]), [-1]);
    let before = index_bytes(dir.path());
    let module = dir.path().join("m_v1");
    let expected = Inspection::open(&module).unwrap().trimmed_index_bytes(|_| true);
    writer.trim_index().unwrap();
    let after = index_bytes(dir.path());
    assert!(after < before * 3 / 4 && after.abs_diff(expected) < 256, "{before} → {after}, {expected}");
    assert_eq!(names(dir.path(), "run-").len(), 1);
    // They know the former index, and find the smaller one in the next listing.
    for other in [&with_all, &with_two] {
        other.refresh().unwrap();
        compute(other, &["x"], 9);
        other.flush().unwrap();
        other.compact().unwrap();
    }
    drop((with_all, with_two));
    let fresh = process(dir.path());
    for store in [&writer, &fresh, &reader(dir.path())] {
        assert_eq!(values(store, &[ids[0], ids[200], ids[599]]), [-1, 1, 2]);
    }
    assert_eq!(fresh.stats().rebuilt_runs, 0, "the smaller index is still there");
    writer.trim_index().unwrap();
    assert!(reader(dir.path()).trim_index().is_err());
}

#[test]
fn a_stale_index_stays_in_use_if_the_trimmed_one_cannot_be_read() {
    let (dir, ids) = three_segments(|_| 7);
    process(dir.path()).make_room(1).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let writer = with_operations(
        dir.path(),
        Faulty::with(move |_, step, path: &Path| {
            let is_run = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("run-"));
            (step == "open" && is_run && failing.load(SeqCst)).then_some(Fault::Refused(ErrorKind::Other))
        }),
    );
    assert_eq!(values(&writer, &ids[200..]), [7; 400]);
    let before = names(dir.path(), "run-");
    fails.store(true, SeqCst);
    assert!(writer.trim_index().is_err());
    assert_eq!(writer.lookup(keys(&ids[200..])).unwrap().missing(), 0, "the stale index leads to every row");
    assert_eq!(names(dir.path(), "run-"), before, "its file stays, and the other one does not");
    fails.store(false, SeqCst);
    writer.trim_index().unwrap();
    assert_ne!(names(dir.path(), "run-"), before);
    assert_eq!((values(&writer, &ids[200..]), writer.stats().rebuilt_runs), (vec![7; 400], 0));
}

#[test]
fn an_index_is_trimmed_although_another_process_removes_the_smaller_one_at_first() {
    let (dir, ids) = three_segments(|_| 7);
    process(dir.path()).make_room(1).unwrap();
    let other = process(dir.path());
    assert_eq!(values(&other, &ids[200..]), [7; 400]);
    let interferes = Arc::new(Mutex::new(None));
    let (path, once) = (dir.path().to_owned(), interferes.clone());
    let writer = with_operations(
        dir.path(),
        Faulty::with(move |_, step, file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if step == "open" && name.starts_with("run-") && file.exists() {
                let other = once.lock().unwrap().take();
                if let Some(other) = other {
                    let other: Store = other;
                    other.refresh().unwrap();
                    other.core.remove_pruned_runs();
                    assert_eq!(names(&path, "run-").len(), 1, "the smaller one was removed");
                }
            }
            None
        }),
    );
    assert_eq!(values(&writer, &ids[200..]), [7; 400]);
    let before = names(dir.path(), "run-");
    *interferes.lock().unwrap() = Some(other);
    writer.trim_index().unwrap();
    assert!(interferes.lock().unwrap().is_none(), "the other process was asked");
    assert_ne!(names(dir.path(), "run-"), before);
    assert_eq!((values(&writer, &ids[200..]), writer.stats().rebuilt_runs), (vec![7; 400], 0));
}
