//! Segments on another machine: what a batch needs of them is read together, and what arrives damaged or not at all is a miss.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::storage::{Draft, FileInfo, Held, LocalStorage, Parts, ReadAt, Sealed, Stamp, Storage, System};
use crate::sys::mmap::Mapped;
use crate::testing::behaviour::compression::{add, check, open_with, options, segments, spec};
use crate::{Compression, Keys, Options, ReadMode, Store};

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// What becomes of the bytes that were read.
type Rule = Box<dyn Fn(&mut [u8]) -> io::Result<()> + Send + Sync>;

/// What a store asks of the other machine.
#[derive(Default)]
struct Wire {
    /// Whether the files have come to this machine.
    is_here: AtomicBool,
    /// How often they have come or gone, if the folder is not listed for that.
    moves: AtomicU64,
    /// Reads of one place, and of several at the same time.
    reads: AtomicUsize,
    rounds: AtomicUsize,
    rule: Mutex<Option<Rule>>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    fn carry(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.rule.lock().unwrap().as_ref().map_or(Ok(()), |rule| rule(bytes))
    }

    fn ruled(&self, rule: impl Fn(&mut [u8]) -> io::Result<()> + Send + Sync + 'static) {
        *self.rule.lock().unwrap() = Some(Box::new(rule));
    }

    fn asked(&self) -> (usize, usize) {
        (self.reads.swap(0, SeqCst), self.rounds.swap(0, SeqCst))
    }
}

/// A folder whose segments are on another machine.
#[derive(Debug)]
struct FarStorage {
    files: LocalStorage<System>,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct FarFile {
    file: Box<dyn ReadAt>,
    wire: Arc<Wire>,
}

impl ReadAt for FarFile {
    fn bytes(&self) -> usize {
        self.file.bytes()
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        self.wire.reads.fetch_add(1, SeqCst);
        self.file.read_at(bytes, at)?;
        self.wire.carry(bytes)
    }

    fn is_far(&self) -> bool {
        true
    }
}

impl FarStorage {
    fn file(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        match self.files.open(name)? {
            Sealed::Read(file) => Ok(file),
            Sealed::Mapped(_) => Err(ErrorKind::Unsupported.into()),
        }
    }
}

impl Storage for FarStorage {
    fn path(&self) -> &Path {
        self.files.path()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let is_dear = self.list_every().is_some();
        if is_dear {
            Ok(Some(Stamp { modified: SystemTime::UNIX_EPOCH, inode: 0 }))
        } else {
            self.files.stamp()
        }
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        self.files.map(name)
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        if self.is_here(name) != Some(false) {
            return self.files.map(name).map(Sealed::Mapped);
        }
        Ok(Sealed::Read(Box::new(FarFile { file: self.file(name)?, wire: self.wire.clone() })))
    }

    fn is_here(&self, name: &str) -> Option<bool> {
        name.starts_with("seg-").then(|| self.wire.is_here.load(SeqCst))
    }

    fn moves(&self) -> Option<Stamp> {
        let inode = self.wire.moves.load(SeqCst);
        (inode > 0).then_some(Stamp { modified: SystemTime::UNIX_EPOCH, inode })
    }

    fn list_every(&self) -> Option<Duration> {
        (self.wire.moves.load(SeqCst) > 0).then_some(Duration::from_hours(1))
    }

    fn read_parts(&self, wanted: &[Parts]) -> Vec<Vec<io::Result<Vec<u8>>>> {
        self.wire.rounds.fetch_add(1, SeqCst);
        let read = |name: &str, range: &Range<usize>| {
            let mut bytes = vec![0; range.len()];
            self.file(name)?.read_at(&mut bytes, range.start)?;
            self.wire.carry(&mut bytes).map(|()| bytes)
        };
        wanted
            .iter()
            .map(|parts| parts.ranges.iter().map(|range| read(&parts.name, range)).collect())
            .collect()
    }

    fn make(&self) -> io::Result<()> {
        self.files.make()
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        self.files.draft()
    }

    fn create_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.files.create_if_absent(name, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.files.info(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        self.files.hold()
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        self.files.map_unnamed(bytes)
    }
}

/// A folder with a segment of these rows, as it is found on another machine.
fn far(
    compression: Compression,
    rows: i64,
    memory_cache_bytes: usize,
) -> (tempfile::TempDir, Store, Arc<Wire>) {
    let dir = tempfile::tempdir().unwrap();
    add(&open_with(dir.path(), &options(compression)), 0..rows);
    let (store, wire) = open_far(dir.path(), &Options { memory_cache_bytes, ..options(compression) });
    (dir, store, wire)
}

fn open_far(dir: &Path, options: &Options) -> (Store, Arc<Wire>) {
    let wire = Arc::new(Wire::default());
    let files = LocalStorage::new(dir.join("m_v1"), System).reading(ReadMode::Pread);
    let storage = FarStorage { files, wire: wire.clone() };
    let store = Store::with_storage(Arc::new(storage), spec(), options).unwrap();
    wire.asked();
    (store, wire)
}

#[test]
fn what_a_batch_needs_of_far_segments_is_read_in_two_rounds_whatever_their_codec() {
    for compression in ALL {
        for memory_cache_bytes in [0, 1 << 30] {
            let (_dir, store, wire) = far(compression, 500, memory_cache_bytes);
            let ids: Vec<i64> = (0..500).map(|i| i * 77 % 500).collect();
            for part in ids.chunks(100) {
                assert_eq!(check(&store, part), 0, "{compression:?}");
                let (reads, rounds) = wire.asked();
                assert!(reads == 0 && rounds <= 2, "{compression:?}: {reads} reads, {rounds} rounds");
            }
            assert_eq!(check(&store, &[7, 7, 499, 500]), 1);
            let stats = store.stats();
            assert_eq!((stats.failed_reads, stats.damaged_segments), (0, 0));
            if memory_cache_bytes > 0 {
                wire.asked();
                assert_eq!(check(&store, &ids), 0);
                assert_eq!(wire.asked(), (0, 0), "what was read is kept");
            }
        }
    }
}

#[test]
fn rows_of_several_far_segments_are_read_in_the_same_rounds() {
    let dir = tempfile::tempdir().unwrap();
    for (number, compression) in (0..).zip(ALL.into_iter().cycle().take(6)) {
        add(&open_with(dir.path(), &options(compression)), 50 * number..50 * (number + 1));
    }
    let options = Options { read_only: true, ..options(Compression::None) };
    let (store, wire) = open_far(dir.path(), &options);
    let ids: Vec<i64> = (0..300).map(|i| i * 77 % 300).collect();
    assert!(store.stats().segments > 1);
    assert_eq!(check(&store, &ids), 0);
    let (reads, rounds) = wire.asked();
    assert!(reads == 0 && rounds <= 2, "{reads} reads, {rounds} rounds");
}

#[test]
fn what_arrives_damaged_is_read_once_more_and_then_its_rows_are_misses() {
    for compression in ALL {
        let (_dir, store, wire) = far(compression, 500, 0);
        let flips = |times: usize| {
            let left = AtomicUsize::new(times);
            wire.ruled(move |bytes| {
                if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                    bytes[0] ^= 1;
                }
                Ok(())
            });
        };
        flips(1);
        assert_eq!(check(&store, &[3]), 0, "{compression:?}");
        assert_eq!(store.stats().damaged_segments, 0);
        flips(usize::MAX);
        assert_eq!(check(&store, &[400]), 1);
        assert_eq!(store.stats().damaged_segments, 1);
    }
}

#[test]
fn far_rows_that_cannot_be_read_are_misses_and_no_damage_until_they_can_be_read_again() {
    for compression in ALL {
        let (_dir, store, wire) = far(compression, 500, 0);
        wire.ruled(|_| Err(ErrorKind::TimedOut.into()));
        assert_eq!(check(&store, &[1, 2, 3]), 3, "{compression:?}");
        assert!(store.stats().failed_reads >= 3);
        store.invalidate_where(|_| false).unwrap_err();
        wire.ruled(|_| Ok(()));
        assert_eq!(check(&store, &[1, 2, 3]), 0);
        assert_eq!(store.stats().damaged_segments, 0);
    }
}

#[test]
fn a_file_that_comes_to_this_machine_is_mapped_and_one_that_leaves_it_is_far_again() {
    let (_dir, store, wire) = far(Compression::None, 500, 0);
    let ids: Vec<i64> = (0..500).collect();
    wire.is_here.store(true, SeqCst);
    for _ in 0..2 {
        assert_eq!(check(&store, &ids), 0);
        assert_eq!(wire.asked(), (0, 0));
    }
    wire.is_here.store(false, SeqCst);
    assert_eq!(check(&store, &ids), 0);
    assert!(wire.asked().1 > 0);
    // What cannot be opened in the other way stays as it is.
    wire.is_here.store(true, SeqCst);
    assert_eq!(check(&store, &ids), 0);
    wire.is_here.store(false, SeqCst);
    wire.ruled(|_| Err(ErrorKind::TimedOut.into()));
    assert_eq!(check(&store, &ids), 0);
}

#[test]
fn a_file_that_comes_to_this_machine_is_mapped_without_a_listing() {
    let dir = tempfile::tempdir().unwrap();
    add(&open_with(dir.path(), &options(Compression::None)), 0..500);
    // No thread of it lists the folder.
    let own = Options { memory_cache_bytes: 0, read_only: true, ..options(Compression::None) };
    let (store, wire) = open_far(dir.path(), &own);
    wire.moves.store(1, SeqCst);
    let missing = |ids: std::ops::Range<i64>| store.lookup(Keys::ints(ids, 0)).unwrap().missing();
    assert_eq!(missing(3..4), 0);
    assert!(wire.asked().1 > 0, "it is far");
    wire.moves.store(2, SeqCst);
    wire.is_here.store(true, SeqCst);
    assert_eq!((missing(0..500), wire.asked()), (0, (0, 0)));
}

#[test]
fn rows_of_far_segments_that_are_dead_are_not_read() {
    let (_dir, store, wire) = far(Compression::None, 500, 0);
    store.invalidate(&Keys::ints(0..250, 0)).unwrap();
    wire.asked();
    let ids: Vec<i64> = (0..250).collect();
    assert_eq!(check(&store, &ids), 250);
    assert_eq!(wire.asked().1, 0);
    assert_eq!(check(&store, &[100, 300]), 1);
}

#[test]
fn far_segments_are_joined_only_for_a_caller_who_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..6 {
        // Closed at once: nothing joins them.
        let store = open_with(dir.path(), &Options { read_only: false, ..options(Compression::None) });
        add(&store, 10 * number..10 * (number + 1));
    }
    let before = segments(dir.path()).len();
    let (store, _) = open_far(dir.path(), &options(Compression::None));
    store.core.compact(crate::upkeep::compaction::Effort::Steady).unwrap();
    assert_eq!(segments(dir.path()).len(), before);
    store.compact().unwrap();
    assert_eq!((store.stats().segments, check(&store, &(0..60).collect::<Vec<_>>())), (1, 0));
}

#[test]
fn what_the_first_round_cannot_read_is_not_asked_for_again_by_each_row() {
    let (_dir, store, wire) = far(Compression::None, 500, 0);
    let left = AtomicUsize::new(1);
    wire.ruled(move |_| match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
        Ok(_) => Err(ErrorKind::TimedOut.into()),
        Err(_) => Ok(()),
    });
    assert!(check(&store, &[1, 250, 490]) > 0);
    assert_eq!(wire.asked(), (0, 2), "rows whose offsets are here make a second round");
    assert_eq!(check(&store, &[1, 250, 490]), 0);
}

#[test]
fn files_that_a_far_segment_replaces_are_removed_only_for_a_caller_who_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, wire) = open_far(dir.path(), &options(Compression::None));
    for number in 0..4 {
        add(&store, 10 * number..10 * (number + 1));
    }
    store.core.compact(crate::upkeep::compaction::Effort::Thorough).unwrap();
    let before = segments(dir.path()).len();
    assert!(before > 1);
    wire.asked();
    let collected = store.core.collect(Duration::ZERO).unwrap();
    assert_eq!((segments(dir.path()).len(), wire.asked()), (before, (0, 0)));
    assert!(collected.is_unfinished, "it is left for later");
    store.core.collect_everywhere(Duration::ZERO).unwrap();
    assert_eq!((segments(dir.path()).len(), check(&store, &(0..40).collect::<Vec<_>>())), (1, 0));
}
