//! Rows that cannot be read or found for a while, whatever step of a reader fails: nothing that is computed or put meanwhile displaces
//! one of them that has replaced another. They are found again once they can be.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::live::damage::DamagedFiles;
use crate::storage::{Draft, FileInfo, Held, LocalStorage, Sealed, Stamp, Storage};
use crate::sys::mmap::Mapped;
use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, replace, seal_all, spec, values};
use crate::upkeep::compaction::Effort;
use crate::{Options, ReadMode, RecomputeSession, Store};

/// A process for which steps fail that `rule` names, as long as the flag is set.
fn failing(
    dir: &Path,
    read_mode: ReadMode,
    fails: &Arc<AtomicBool>,
    rule: impl Fn(&str, &Path) -> bool + Send + Sync + 'static,
) -> crate::Result<Store> {
    on(Arc::new(failing_storage(dir, read_mode, fails, rule)), read_mode)
}

fn failing_storage(
    dir: &Path,
    read_mode: ReadMode,
    fails: &Arc<AtomicBool>,
    rule: impl Fn(&str, &Path) -> bool + Send + Sync + 'static,
) -> LocalStorage<Faulty> {
    let fails = fails.clone();
    let steps = Faulty::with(move |_, step, path: &Path| {
        (fails.load(SeqCst) && rule(step, path)).then_some(Fault::Refused(ErrorKind::Other))
    });
    LocalStorage::new(dir.join("m_v1"), steps).reading(read_mode)
}

fn on(storage: Arc<dyn Storage>, read_mode: ReadMode) -> crate::Result<Store> {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options =
        Options { flush_interval, refresh_every, memory_cache_bytes: 0, read_mode, ..Options::default() };
    Store::with_storage(storage, spec(), &options)
}

/// A folder whose listings lack these names, as those of a network file system may that are older, and still have others.
#[derive(Debug)]
struct Stale {
    folder: LocalStorage<Faulty>,
    unlisted: Arc<Mutex<BTreeSet<String>>>,
    listed: Arc<Mutex<BTreeSet<String>>>,
}

impl Storage for Stale {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.folder.list()?;
        names.retain(|name| !self.unlisted.lock().unwrap().contains(name));
        let mut listed = self.listed.lock().unwrap().clone();
        listed.retain(|name| !names.contains(name));
        names.extend(listed);
        Ok(names)
    }

    fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.folder.stamp()
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        self.folder.map(name)
    }

    fn make(&self) -> io::Result<()> {
        self.folder.make()
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        self.folder.draft()
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        self.folder.open(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.sync()
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.folder.info(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        self.folder.hold()
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        self.folder.map_unnamed(bytes)
    }
}

fn is_open_of(extension: &'static str) -> impl Fn(&str, &Path) -> bool + Send + Sync + 'static {
    move |step, path| step == "open" && path.extension().is_some_and(|own| own == extension)
}

/// A folder with a row whose value is 1000; it may have replaced another.
fn with_a_row(is_replaced: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], if is_replaced { 1 } else { 1000 });
    seal_all(&store);
    if is_replaced {
        replace(&store, &RecomputeSession::new(), &["x"], 1000);
        seal_all(&store);
    }
    dir
}

/// The row in this process, in another one, and in another one after files were joined.
fn left(dir: &Path, store: &Store) -> [Vec<i64>; 3] {
    let (own, fresh) = (values(store, &["x"]), values(&process(dir), &["x"]));
    store.compact().unwrap();
    [own, fresh, values(&process(dir), &["x"])]
}

#[test]
fn what_is_computed_while_a_segment_cannot_be_opened_does_not_displace_a_replacement() {
    let (dir, fails) = (with_a_row(true), Arc::new(AtomicBool::new(true)));
    let other = failing(dir.path(), ReadMode::Map, &fails, is_open_of("arrow")).unwrap();
    compute(&other, &["x"], 7);
    fails.store(false, SeqCst);
    let lost = other.flush().unwrap_err().to_string();
    assert!(lost.contains("1 computed row was not kept"), "{lost}");
    assert_eq!(left(dir.path(), &other), [[1000]; 3]);
}

#[test]
fn a_segment_that_cannot_be_opened_when_its_name_comes_is_noticed_by_the_next_lookup() {
    let (dir, fails) = (with_a_row(true), Arc::new(AtomicBool::new(false)));
    let other = failing(dir.path(), ReadMode::Map, &fails, is_open_of("arrow")).unwrap();
    assert_eq!(values(&other, &["x"]), [1000]);
    let store = process(dir.path());
    compute(&store, &["y"], 1000);
    fails.store(true, SeqCst);
    seal_all(&store);
    other.refresh().unwrap();
    other.lookup_to_put(keys(&["y"]), None).unwrap_err();
    fails.store(false, SeqCst);
    assert_eq!(other.lookup_to_put(keys(&["y"]), None).unwrap().missing(), 0);
    assert_eq!(other.lookup_to_put(keys(&["z"]), None).unwrap().missing(), 1);
}

/// How many reads fail, one after the other: the row may be found by the second look, or not.
const FAILING_READS: [usize; 4] = [1, 2, 4, 1000];

/// A process whose reads `from..to` fail, as long as it is said; without the index where `has_index` is not.
fn with_failing_reads(
    dir: &Path,
    fails: &Arc<AtomicBool>,
    reads: std::ops::Range<usize>,
    has_index: bool,
) -> crate::Result<Store> {
    let (is_run, before) = (is_open_of("idx"), AtomicUsize::new(0));
    failing(dir, ReadMode::Pread, fails, move |step, path| {
        step == "read_at" && reads.contains(&before.fetch_add(1, SeqCst)) || !has_index && is_run(step, path)
    })
}

#[test]
fn what_is_computed_while_reads_fail_does_not_displace_a_replacement_whichever_they_are() {
    let mut lost = 0;
    for (has_index, len) in [true, false].into_iter().flat_map(|has| FAILING_READS.map(|len| (has, len))) {
        for from in 0..24 {
            let (dir, fails) = (with_a_row(true), Arc::new(AtomicBool::new(true)));
            let Ok(other) = with_failing_reads(dir.path(), &fails, from..from + len, has_index) else {
                continue;
            };
            compute(&other, &["x"], 7);
            fails.store(false, SeqCst);
            // Whether a row was computed depends on which reads have failed.
            lost += usize::from(other.flush().is_err());
            other.flush().unwrap();
            let what = format!("reads {from}.. of {len}, index: {has_index}");
            assert_eq!(left(dir.path(), &other), [[1000]; 3], "{what}");
        }
    }
    assert!(lost > 0, "some were computed, and lost");
}

#[test]
fn no_value_is_put_while_the_row_cannot_be_read_or_found() {
    let mut refused = 0;
    for (is_replaced, len) in [true, false].into_iter().flat_map(|is| FAILING_READS.map(|len| (is, len))) {
        for from in 0..24 {
            let (dir, fails) = (with_a_row(is_replaced), Arc::new(AtomicBool::new(false)));
            let other = with_failing_reads(dir.path(), &fails, from..from + len, true).unwrap();
            fails.store(true, SeqCst);
            match other.lookup_to_put(keys(&["x"]), None) {
                Ok(rows) => assert_eq!(rows.missing(), 0, "reads {from}.. of {len}, replaced: {is_replaced}"),
                Err(error) => refused += usize::from(error.to_string().contains("cannot put values")),
            }
        }
    }
    assert!(refused > 0, "the row could not be read");
}

#[test]
fn a_value_is_replaced_while_the_segment_cannot_be_opened_and_none_is_put() {
    for is_replaced in [false, true] {
        let (dir, fails) = (with_a_row(is_replaced), Arc::new(AtomicBool::new(true)));
        let other = failing(dir.path(), ReadMode::Map, &fails, is_open_of("arrow")).unwrap();
        let refused = other.lookup_to_put(keys(&["x"]), None).unwrap_err().to_string();
        assert!(refused.contains("cannot put values"), "{refused}");
        let mut rows = other.lookup_to_put(keys(&["x"]), Some(&RecomputeSession::new())).unwrap();
        other.insert(&mut rows, &[0], column(&[5])).unwrap();
        fails.store(false, SeqCst);
        other.flush().unwrap();
        assert_eq!(left(dir.path(), &other), [[5]; 3]);
    }
}

#[test]
fn what_no_change_names_is_kept_while_a_segment_cannot_be_opened() {
    let (dir, fails) = (with_a_row(true), Arc::new(AtomicBool::new(true)));
    let other = failing(dir.path(), ReadMode::Map, &fails, is_open_of("arrow")).unwrap();
    compute(&other, &["y"], 7);
    fails.store(false, SeqCst);
    other.flush().unwrap();
    assert_eq!((values(&other, &["y"]), values(&process(dir.path()), &["y"])), (vec![7], vec![7]));
    assert_eq!(left(dir.path(), &other), [[1000]; 3]);
}

#[test]
fn a_stale_listing_does_not_hide_that_a_segment_could_not_be_opened() {
    let (dir, fails) = (with_a_row(false), Arc::new(AtomicBool::new(false)));
    let folder = failing_storage(dir.path(), ReadMode::Map, &fails, is_open_of("arrow"));
    let unlisted = Arc::<Mutex<BTreeSet<String>>>::default();
    let stale = Stale { folder, unlisted: unlisted.clone(), listed: Arc::default() };
    let other = on(Arc::new(stale), ReadMode::Map).unwrap();
    let before: BTreeSet<String> = names(dir.path(), "").into_iter().collect();
    let store = process(dir.path());
    replace(&store, &RecomputeSession::new(), &["x"], 2000);
    seal_all(&store);
    fails.store(true, SeqCst);
    other.refresh().unwrap();
    *unlisted.lock().unwrap() =
        names(dir.path(), "").into_iter().filter(|name| !before.contains(name)).collect();
    other.refresh().unwrap();
    compute(&other, &["x"], 7);
    unlisted.lock().unwrap().clear();
    fails.store(false, SeqCst);
    other.flush().unwrap_err();
    assert_eq!(left(dir.path(), &other), [[2000]; 3]);
}

/// Two segments are joined, and one of them is gone. A listing still shows both, and not what was joined.
#[test]
fn nothing_is_evicted_before_it_is_known_what_took_the_place_of_a_segment_that_was_listed_and_is_gone() {
    for gone in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        for key in ["x", "y"] {
            compute(&store, &[key], 1);
            seal_all(&store);
        }
        let inputs = names(dir.path(), "seg-");
        store.core.compact(Effort::Thorough).unwrap();
        let joined = names(dir.path(), "seg-").into_iter().filter(|name| !inputs.contains(name)).collect();
        compute(&store, &["z"], 1);
        seal_all(&store);
        std::mem::forget(store);
        std::fs::remove_file(dir.path().join("m_v1").join(&inputs[gone])).unwrap();
        let (unlisted, listed) =
            (Arc::new(Mutex::new(joined)), Arc::new(Mutex::new(inputs.into_iter().collect())));
        let folder = failing_storage(dir.path(), ReadMode::Map, &Arc::default(), |_, _| false);
        let stale = Stale { folder, unlisted: unlisted.clone(), listed: listed.clone() };
        let other = on(Arc::new(stale), ReadMode::Map).unwrap();
        let refused = format!("{:#}", other.make_room(1).unwrap_err());
        assert!(refused.contains("segments have vanished"), "{refused}");
        unlisted.lock().unwrap().clear();
        listed.lock().unwrap().clear();
        assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [1; 3]);
        // The oldest file may be that of the other input, whose rows are in the joined one too.
        let is_left = || values(&process(dir.path()), &["x"]) == [1];
        for _ in 0..2 {
            if is_left() {
                other.make_room(1).unwrap();
            }
        }
        assert_eq!(values(&process(dir.path()), &["x", "y", "z"]), [-1, -1, 1], "the oldest rows go first");
        std::mem::forget(other);
    }
}

#[test]
fn an_index_that_could_not_be_made_is_made_after_the_next_listing() {
    let mut partial = 0;
    for from in 0..12 {
        let (dir, fails) = (with_a_row(false), Arc::new(AtomicBool::new(true)));
        let without_index = with_failing_reads(dir.path(), &fails, from..1000, false);
        for run in names(dir.path(), "run-") {
            std::fs::remove_file(dir.path().join("m_v1").join(run)).unwrap();
        }
        let Ok(other) = without_index else { continue };
        partial += usize::from(other.core.snapshot().is_partial);
        fails.store(false, SeqCst);
        assert_eq!(other.lookup_to_put(keys(&["y"]), None).unwrap().missing(), 1, "reads {from}..");
        assert_eq!(values(&other, &["x"]), [1000]);
    }
    assert!(partial > 0, "some could not be made");
}

/// A joined segment is damaged, and the rows that it stands for are still there. As long as the thread that has found the damage
/// makes the next snapshot (and the index of what lives again), another one looks up.
#[test]
fn what_is_computed_while_damage_is_dealt_with_does_not_displace_a_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    let ids: Vec<String> = (0..30_000).map(|i| format!("key {i}")).chain(["x".into()]).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    compute(&store, &ids, 1);
    store.flush().unwrap();
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    compute(&store, &["w"], 0x1122_3344_5566_7788);
    store.flush().unwrap();
    let inputs = names(dir.path(), "seg-");
    store.compact().unwrap();
    let joined = names(dir.path(), "seg-").into_iter().find(|name| !inputs.contains(name)).unwrap();
    let path = dir.path().join("m_v1").join(joined);
    let mut bytes = std::fs::read(&path).unwrap();
    let wanted = 0x1122_3344_5566_7788_i64.to_le_bytes();
    let at = bytes.windows(8).position(|own| own == wanted).unwrap();
    bytes[at] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let other = process(dir.path());
    let segments = other.core.snapshot().segments.clone();
    assert_eq!(segments.len(), 1);
    let mut rows = std::thread::scope(|scope| {
        // The two halves of `Core::drop_damaged`, by a thread that has looked up `w`.
        let mut live = other.core.live();
        live.drop_damaged(&DamagedFiles { segments, ..DamagedFiles::default() });
        let lookup = scope.spawn(|| other.lookup(keys(&["x"])).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        other.core.install(&mut live);
        drop(live);
        lookup.join().unwrap()
    });
    if rows.missing() > 0 {
        other.insert(&mut rows, &[0], column(&[7])).unwrap();
    }
    other.flush().unwrap();
    other.compact().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}

/// The segment is not complete yet when it is opened first (a copy under way).
#[test]
fn what_is_computed_while_a_segment_looks_damaged_does_not_displace_the_replacement() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    let before = names(dir.path(), "seg-");
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap();
    let after = names(dir.path(), "seg-").into_iter().find(|name| !before.contains(name)).unwrap();
    drop(store);
    let path = dir.path().join("m_v1").join(after);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let other = process(dir.path());
    assert_eq!(values(&other, &["x"]), [-1]);
    compute(&other, &["x"], 7);
    let flushed = other.flush();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    assert!(flushed.is_err(), "{flushed:?}");
    other.refresh().unwrap();
    assert_eq!(values(&other, &["x"]), [1000]);
    other.compact().unwrap();
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}
