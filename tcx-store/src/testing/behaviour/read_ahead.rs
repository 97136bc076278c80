//! Rows that are on the disk and not in memory are read before a lookup needs them, all at the same time.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::read::read_ahead::{Plan, announce};
use crate::read::wide_rows::WideRow;
use crate::sys::mmap::Mapped;
use crate::sys::residency::{is_resident, major_faults};
use crate::testing::behaviour::compression::{add, check, open_with, options, spec};
use crate::{Compression, Keys, Store};

const ROWS: i64 = 4000;

/// A store on a disk, of whose rows nothing is in memory; `None` if the system keeps what it is asked to drop.
fn on_disk(compression: Compression) -> Option<(Store, tempfile::TempDir)> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    std::fs::create_dir_all(&target).unwrap();
    let dir = tempfile::tempdir_in(target).unwrap();
    let store = open_with(dir.path(), &options(compression));
    (0..2).for_each(|half| add(&store, half * ROWS / 2..(half + 1) * ROWS / 2));
    drop(store);
    let store = open_with(dir.path(), &options(compression));
    let mut is_dropped = true;
    for entry in std::fs::read_dir(dir.path().join("m_v1")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let file = std::fs::File::open(path).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            // The open store holds a few pages of a segment, and those around them.
            let map = Mapped::new(&file).unwrap();
            is_dropped &= map.len() < 1 << 20 || !is_resident(&map);
        }
    }
    is_dropped.then_some((store, dir))
}

#[test]
fn what_was_read_ahead_is_looked_up_without_waiting_for_the_disk() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let Some((store, _dir)) = on_disk(compression) else { return };
        let ids: Vec<i64> = (0..ROWS).map(|id| id * 7_919 % ROWS).collect();
        let (mut lookup, snapshot) = (spec().empty_lookup(Keys::ints(ids.clone(), 0)), store.core.snapshot());
        let read = &mut |_: Vec<WideRow<'_>>| panic!("the rows are narrow");
        assert!(announce(&mut lookup, &snapshot, false, read), "{compression:?}: nothing was on the disk");
        let start = Instant::now();
        while announce(&mut lookup, &snapshot, false, read) {
            assert!(start.elapsed() < Duration::from_mins(1), "{compression:?} is not read");
            std::thread::yield_now();
        }
        assert!(
            announce(&mut lookup, &snapshot, true, read),
            "{compression:?}: everything is announced if nothing is known"
        );
        let before = major_faults();
        assert_eq!(check(&store, &ids), 0);
        let waited = major_faults() - before;
        // A page of the program itself may have been dropped.
        assert!(waited < 5, "{compression:?}: waited {waited} times");
    }
}

#[test]
fn a_lookup_reads_ahead_if_the_one_before_had_to_wait_until_one_finds_everything_in_memory() {
    let Some((store, _dir)) = on_disk(Compression::None) else { return };
    let is_wanted = || store.core.read_ahead.plan() == Plan::Missing;
    // Rows of the first segment, and of the second. Of rows in order the system reads the next ones on its own.
    for first in [0, ROWS / 2] {
        let ids: Vec<i64> = (0..ROWS / 2).map(|id| first + id * 7_919 % (ROWS / 2)).collect();
        assert_eq!(check(&store, &ids), 0);
        assert!(is_wanted(), "the rows from {first} on were on the disk");
        assert_eq!(check(&store, &ids), 0);
        assert!(!is_wanted(), "the rows from {first} on are in memory");
    }
}

#[test]
fn few_rows_and_unknown_ones_are_found_missing_as_without_it() {
    let Some((store, _dir)) = on_disk(Compression::None) else { return };
    for ids in [vec![1, ROWS + 1], (ROWS - 100..ROWS + 100).collect()] {
        store.core.read_ahead.want();
        let rows = store.lookup(Keys::ints(ids.iter().copied(), 0)).unwrap();
        assert_eq!(rows.missing(), ids.iter().filter(|&&id| id >= ROWS).count());
    }
}
