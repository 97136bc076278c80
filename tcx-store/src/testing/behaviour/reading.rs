//! Segments that are read instead of mapped.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::LookupOptions;
use crate::inspect::{SegmentState, inspected};
use crate::segment::forged;
use crate::storage::{LocalStorage, ReadOnlyStorage, Sealed, Storage, System};
use crate::testing::behaviour::compression::{add, check, open_with, options, segments, spec};
use crate::testing::{Fault, Faulty};
use crate::testing::{compute, process, values};
use crate::{Compression, Options, ReadMode, Store};

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn reading(read_mode: ReadMode, memory_cache_bytes: usize) -> Options {
    Options { memory_cache_bytes, read_mode, ..options(Compression::None) }
}

/// A folder of a segment.
fn folder(compression: Compression, rows: i64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    add(&open_with(dir.path(), &options(compression)), 0..rows);
    dir
}

/// A reader whose reads and opens fail as `rule` says, by the name of the step.
fn failing(
    dir: &Path,
    options: &Options,
    rule: impl Fn(&str) -> Option<ErrorKind> + Send + Sync + 'static,
) -> Store {
    let steps = Faulty::with(move |_, step, _| rule(step).map(Fault::Refused));
    let storage = LocalStorage::new(dir.join("m_v1"), steps).reading(options.read_mode);
    Store::with_storage(Arc::new(storage), spec(), options).unwrap()
}

#[test]
fn what_is_read_is_what_is_mapped_under_every_codec_with_and_without_the_hot_tier() {
    for compression in ALL {
        let dir = folder(compression, 500);
        let ids: Vec<i64> = (0..500).map(|i| i * 77 % 500).collect();
        for (mode, memory_cache_bytes) in
            [(ReadMode::Map, 0), (ReadMode::Pread, 0), (ReadMode::Pread, 300_000), (ReadMode::Pread, 1 << 30)]
        {
            let store = open_with(dir.path(), &reading(mode, memory_cache_bytes));
            assert_eq!(check(&store, &ids), 0, "{compression:?} {mode:?} {memory_cache_bytes}");
            assert_eq!(check(&store, &[499, 7, 7, 0]), 0);
            assert!(store.stats().memory_cache_bytes as usize <= memory_cache_bytes);
            assert_eq!((store.stats().failed_reads, store.stats().damaged_segments), (0, 0));
        }
    }
}

#[test]
fn segments_that_are_read_are_written_joined_and_invalidated_as_mapped_ones_are() {
    let dir = tempfile::tempdir().unwrap();
    for (number, compression) in ALL.into_iter().enumerate() {
        let store = open_with(dir.path(), &Options { compression, ..reading(ReadMode::Pread, 1 << 20) });
        add(&store, 100 * number as i64..100 * (number as i64 + 1));
    }
    let store = open_with(dir.path(), &reading(ReadMode::Pread, 1 << 20));
    store.invalidate(&crate::Keys::ints([5], 0)).unwrap();
    store.compact().unwrap();
    let ids: Vec<i64> = (0..300).collect();
    assert_eq!((check(&store, &ids), store.stats().segments, store.stats().rows), (1, 1, 299));
    assert_eq!(check(&open_with(dir.path(), &reading(ReadMode::Map, 0)), &ids), 1);
}

#[test]
fn rows_that_cannot_be_read_are_misses_and_no_damage_until_they_can_be_read_again() {
    for compression in ALL {
        let dir = folder(compression, 200);
        let fails = Arc::new(AtomicUsize::new(0));
        let rule = fails.clone();
        let options = reading(ReadMode::Pread, 0);
        let store = failing(dir.path(), &options, move |step| {
            (step == "read_at" && rule.load(SeqCst) > 0).then_some(ErrorKind::Other)
        });
        let ids: Vec<i64> = (0..200).collect();
        assert_eq!(check(&store, &ids), 0);
        fails.store(1, SeqCst);
        assert_eq!(check(&store, &ids), 200);
        // The keys cannot be read, so the predicate cannot decide which to invalidate.
        assert_eq!(store.invalidate_where(|_| true).unwrap_err().kind(), crate::ErrorKind::Io);
        assert!(store.stats().failed_reads >= 200);
        fails.store(0, SeqCst);
        assert_eq!((check(&store, &ids), store.stats().damaged_segments), (0, 0));
    }
}

#[test]
fn a_segment_that_could_not_be_read_is_reported_by_every_inspection() {
    let dir = folder(Compression::None, 10);
    let fails = Arc::new(AtomicUsize::new(0));
    let rule = fails.clone();
    let steps = Faulty::with(move |_, step, path| {
        let is_segment = path.extension().is_some_and(|extension| extension == "arrow");
        (step == "open" && is_segment && rule.load(SeqCst) > 0).then_some(Fault::Refused(ErrorKind::Other))
    });
    let options = reading(ReadMode::Pread, 0);
    let storage = LocalStorage::new(dir.path().join("m_v1"), steps).reading(options.read_mode);
    let store = Store::with_storage(Arc::new(storage), spec(), &options).unwrap();
    add(&open_with(dir.path(), &super::compression::options(Compression::None)), 10..20);
    fails.store(1, SeqCst);
    store.refresh().unwrap();
    // By now the disk has recovered, which does not bring its rows.
    fails.store(0, SeqCst);
    let storage = ReadOnlyStorage::new(dir.path().join("m_v1"));
    let segments = inspected(&mut store.core.live(), &storage, &storage.list().unwrap());
    let states: Vec<_> = segments.iter().map(|own| (own.facts.rows, own.facts.state.hides_rows())).collect();
    assert_eq!(states, [(0, true), (10, false)]);
    store.refresh().unwrap();
    let segments = inspected(&mut store.core.live(), &storage, &storage.list().unwrap());
    assert!(segments.iter().all(|own| own.facts.state == SegmentState::Served));
}

#[test]
fn of_rows_that_are_read_only_the_leaves_that_are_wanted_are() {
    let dir = folder(Compression::None, 2_000);
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let store = failing(dir.path(), &reading(ReadMode::Pread, 0), move |step| {
        count.fetch_add(usize::from(step == "read_at"), SeqCst);
        None
    });
    let reads_of = |wanted: &[usize]| {
        let before = reads.load(SeqCst);
        let keys = crate::Keys::ints([3, 1_000, 1_999], 0);
        assert_eq!(
            store
                .lookup_with(keys, LookupOptions { leaves: Some(&wanted.into()), ..LookupOptions::default() })
                .unwrap()
                .missing(),
            0
        );
        reads.load(SeqCst) - before
    };
    let (all, none) = (reads_of(&[0, 1, 2]), reads_of(&[]));
    assert_eq!(reads_of(&[1]), none + 3, "the rows of a leaf that all have the same length");
    assert!(all >= none + 9, "{all} of all leaves, {none} of none");
    let rows = store
        .lookup_with(
            crate::Keys::ints([3], 0),
            LookupOptions { leaves: Some(&[1].into()), ..LookupOptions::default() },
        )
        .unwrap();
    let is_there = |ask: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).is_ok();
    assert!(is_there(&|| drop(rows.bytes(1, 0).to_vec())));
    assert!(!is_there(&|| drop(rows.bytes(0, 0).to_vec())) && !is_there(&|| _ = rows.is_present(0, 0)));
}

#[test]
fn rows_that_were_prefetched_are_found_without_a_read() {
    for compression in ALL {
        let dir = folder(compression, 500);
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let store = failing(dir.path(), &reading(ReadMode::Pread, 1 << 30), move |step| {
            count.fetch_add(usize::from(step == "read_at"), SeqCst);
            None
        });
        assert_eq!(store.prefetch(crate::Keys::ints([3, 250, 499, 777], 0)).unwrap(), 3);
        let before = reads.load(SeqCst);
        assert_eq!(store.lookup(crate::Keys::ints([499, 3, 250], 0)).unwrap().missing(), 0);
        assert_eq!(reads.load(SeqCst), before, "{compression:?}");
        assert_eq!((store.stats().hits, store.stats().misses), (3, 0), "prefetching counts neither");
    }
}

#[test]
fn a_handle_that_has_become_stale_is_opened_again() {
    let dir = folder(Compression::None, 200);
    let reads = Arc::new(AtomicUsize::new(0));
    let rule = reads.clone();
    let store = failing(dir.path(), &reading(ReadMode::Pread, 0), move |step| {
        let stale = step == "read_at" && rule.fetch_add(1, SeqCst) % 2 == 1;
        stale.then_some(ErrorKind::StaleNetworkFileHandle)
    });
    assert_eq!(check(&store, &[3, 4, 199]), 0);
    assert!(reads.load(SeqCst) > 4);
}

#[test]
fn rows_of_a_file_that_was_removed_are_misses() {
    let dir = folder(Compression::Zstd, 200);
    let gone = Arc::new(AtomicUsize::new(0));
    let rule = gone.clone();
    let store = failing(dir.path(), &reading(ReadMode::Pread, 0), move |step| {
        (step == "read_at" && rule.load(SeqCst) > 0).then_some(ErrorKind::StaleNetworkFileHandle)
    });
    assert_eq!(check(&store, &[1, 2]), 0);
    gone.store(1, SeqCst);
    let rows = store.lookup(crate::Keys::ints([1, 2], 0)).unwrap();
    assert_eq!((rows.missing(), store.stats().damaged_segments), (2, 0));
    std::fs::remove_file(&segments(dir.path())[0].0).unwrap();
    assert_eq!(check(&store, &[1, 2]), 2);
    // The folder can be read again, and is seen to lack it.
    gone.store(0, SeqCst);
    assert_eq!((check(&store, &[1, 2]), store.stats().segments), (2, 0));
}

#[test]
fn damage_that_is_read_is_a_miss_and_is_counted() {
    for compression in ALL {
        let dir = folder(compression, 1000);
        let [(path, _)] = &segments(dir.path())[..] else { panic!("one segment") };
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
        let store = open_with(dir.path(), &reading(ReadMode::Pread, 1 << 20));
        assert!(check(&store, &(0..1000).collect::<Vec<_>>()) > 0);
        assert_eq!((store.stats().damaged_segments, store.stats().failed_reads), (1, 0));
    }
}

#[test]
fn files_of_a_local_directory_are_mapped_unless_one_asks_for_reads() {
    let dir = folder(Compression::None, 1);
    let name = segments(dir.path())[0].1.to_string();
    for (mode, maps) in [(ReadMode::Map, true), (ReadMode::Pread, false)] {
        let storage = LocalStorage::new(dir.path().join("m_v1"), System).reading(mode);
        assert_eq!(matches!(storage.open(&name).unwrap(), Sealed::Mapped(_)), maps, "{mode:?}");
    }
}

#[test]
fn two_segments_that_share_half_a_name_do_not_share_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let writer = process(dir.path());
    compute(&writer, &["mine"], 7777);
    writer.flush().unwrap();
    let original = writer.core.live().segments.usable()[0].clone();
    // A segment forged by hand: it contains the row of another key.
    let (mut name, bytes) = forged(&original, |bytes| {
        let mut put = |from: &[u8], to: &[u8]| {
            let at = bytes.windows(from.len()).position(|own| own == from).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to);
        };
        put(b"mine", b"his ");
        put(&7777_i64.to_le_bytes(), &8888_i64.to_le_bytes());
    });
    name.random = original.name().random;
    std::fs::write(dir.path().join("m_v1").join(name.to_string()), bytes).unwrap();
    let options = Options { refresh_every: Duration::ZERO, ..reading(ReadMode::Pread, 1 << 20) };
    let store = Store::open(dir.path(), crate::testing::spec(), &options).unwrap();
    assert_eq!(values(&store, &["mine", "his "]), [7777, 8888]);
}
