//! Trouble with the disk stays inside: it is told once, turns writing off and on again, and costs no computed row that
//! was accepted before.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::testing::{Fault, Faulty};
use crate::testing::{column, compute, keys, names, process, spec, values, with_operations};
use crate::{Losses, Options, Store};

/// What the whole program has logged: the writer's thread has no subscriber of its own.
static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

/// How many lines about this folder say so.
fn warned(dir: &Path, what: &str) -> usize {
    let logged = LOGGED.lock().unwrap();
    let text = String::from_utf8_lossy(&logged);
    text.lines().filter(|line| line.contains(what) && line.contains(dir.to_str().unwrap())).count()
}

/// Fails every step that changes something with this error, as long as it is told to.
fn unwritable(kind: ErrorKind) -> (Faulty, Arc<AtomicBool>) {
    let off = Arc::new(AtomicBool::new(false));
    let is_off = off.clone();
    let changes = ["create_dir", "create_file", "write", "sync", "rename", "link", "rename_no_replace"];
    let rule = move |_, step: &str, _: &Path| {
        (is_off.load(SeqCst) && changes.contains(&step)).then_some(Fault::Refused(kind))
    };
    (Faulty::with(rule), off)
}

#[test]
fn whatever_the_disk_says_writing_goes_off_is_told_once_and_goes_on_again() {
    use ErrorKind::{
        Other, OutOfMemory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StaleNetworkFileHandle,
        StorageFull, TimedOut,
    };
    listen();
    let kinds = [
        Other,
        OutOfMemory,
        PermissionDenied,
        QuotaExceeded,
        ReadOnlyFilesystem,
        StaleNetworkFileHandle,
        StorageFull,
        TimedOut,
    ];
    for kind in kinds {
        let dir = tempfile::tempdir().unwrap();
        let (steps, off) = unwritable(kind);
        let store = with_operations(dir.path(), steps);
        compute(&store, &["a"], 1);
        store.flush().unwrap();
        for round in 1..=2 {
            off.store(true, SeqCst);
            let (kept, dropped) = (format!("kept {round}"), format!("dropped {round}"));
            compute(&store, &[&kept], 2);
            for _ in 0..5 {
                store.flush().unwrap_err();
            }
            compute(&store, &[&dropped], 3);
            assert_eq!(values(&store, &["a", &kept, &dropped]), [1, 2, -1], "{kind:?}");
            off.store(false, SeqCst);
            store.flush().unwrap_err();
            store.flush().unwrap();
            assert!(store.write_failure().is_none());
            assert_eq!(store.stats().rows_not_kept(), round);
            assert_eq!(values(&process(dir.path()), &["a", &kept]), [1, 2], "{kind:?}");
            assert_eq!(warned(dir.path(), "writing is off"), round as usize, "{kind:?}");
            assert_eq!(warned(dir.path(), "writing works again"), round as usize, "{kind:?}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_listed_is_counted_and_logged_once_until_it_can_be() {
    listen();
    let (dir, off) = (tempfile::tempdir().unwrap(), Arc::new(AtomicBool::new(false)));
    let is_off = off.clone();
    let rule = move |_, step: &str, _: &Path| {
        (is_off.load(SeqCst) && step == "list").then_some(Fault::Refused(ErrorKind::Other))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["a"], 1);
    store.flush().unwrap();
    let lookup = || {
        // The folder is listed at most every 100 ms.
        sleep(Duration::from_millis(110));
        assert_eq!(store.lookup(keys(&["a", "b"])).unwrap().missing(), 1);
    };
    for round in 1..=2 {
        let before = store.stats().failed_listings;
        off.store(true, SeqCst);
        (0..3).for_each(|_| lookup());
        store.refresh().unwrap_err();
        assert!(store.stats().failed_listings >= before + 4, "{:?}", store.stats());
        assert_eq!(warned(dir.path(), "cannot look for rows of other processes"), round);
        off.store(false, SeqCst);
        let before = store.stats().failed_listings;
        lookup();
        store.refresh().unwrap();
        assert_eq!(store.stats().failed_listings, before);
    }
    assert_eq!(store.stats().write_failures, 0);
}

#[test]
fn what_fails_in_the_background_is_told_once_and_again_after_it_has_worked() {
    listen();
    let dir = tempfile::tempdir().unwrap();
    let (steps, off) = unwritable(ErrorKind::StorageFull);
    let store = with_operations(dir.path(), steps);
    for round in 1..=2 {
        // Segments of the same size, so that they are joined, or their runs merged.
        off.store(false, SeqCst);
        for row in 0..4 {
            compute(&store, &[&format!("{round} {row}")], 1);
            crate::testing::seal_all(&store);
        }
        off.store(true, SeqCst);
        (0..5).for_each(|_| store.core.tidy());
        assert_eq!(warned(dir.path(), "cannot join segments"), round, "{}", warned(dir.path(), ""));
        off.store(false, SeqCst);
        store.core.tidy();
    }
}

#[test]
fn a_disk_that_cannot_be_read_costs_misses_and_no_errors() {
    let dir = tempfile::tempdir().unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let is_lost = lost.clone();
    let rule = move |_, _: &str, _: &Path| {
        is_lost.load(SeqCst).then_some(Fault::Refused(ErrorKind::StaleNetworkFileHandle))
    };
    let store = with_operations(dir.path(), Faulty::with(rule));
    compute(&store, &["a"], 1);
    store.flush().unwrap();
    let other = process(dir.path());
    compute(&other, &["b"], 2);
    other.flush().unwrap();
    lost.store(true, SeqCst);
    for _ in 0..3 {
        let rows = store.lookup(keys(&["a", "b"])).unwrap();
        assert_eq!(
            rows.distinct_missing_positions(),
            [1],
            "what is mapped is served, what would have to be opened is missed"
        );
    }
    compute(&store, &["c"], 3);
    store.flush().unwrap_err();
    assert_eq!(store.lookup(keys(&["c"])).unwrap().missing(), 0);
    lost.store(false, SeqCst);
    store.flush().unwrap();
    assert_eq!(values(&store, &["a", "b", "c"]), [1, 2, 3]);
    assert_eq!(values(&process(dir.path()), &["a", "b", "c"]), [1, 2, 3]);
}

/// The folder is gone while this lasts, as when a mount is lost.
struct Gone(PathBuf);

impl Gone {
    fn new(dir: &Path) -> Self {
        std::fs::rename(dir.join("m_v1"), dir.join("gone")).unwrap();
        Self(dir.to_owned())
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        std::fs::rename(self.0.join("gone"), self.0.join("m_v1")).unwrap();
    }
}

#[test]
fn a_folder_that_vanishes_after_an_invalidation_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["a", "b"], 1);
    store.flush().unwrap();
    store.invalidate(&keys(&["b"])).unwrap();
    let mut rows = store.lookup(keys(&["b", "c"])).unwrap();
    let gone = Gone::new(dir.path());
    store.insert(&mut rows, &[0, 1], column(&[2, 2])).unwrap();
    let error = store.flush().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Io);
    assert!(format!("{error:#}").contains("restore it, or open the module again"), "{error}");
    store.collect(Duration::ZERO).unwrap_err();
    assert_eq!(values(&store, &["a", "b", "c"]), [-1, 2, 2], "what is buffered stays readable");
    assert!(names(dir.path(), "").is_empty(), "the numbers of changes must not begin anew");
    drop(gone);
    store.flush().unwrap();
    assert_eq!(values(&store, &["a", "b", "c"]), [1, 2, 2]);
    assert_eq!(values(&process(dir.path()), &["a", "b", "c"]), [1, 2, 2]);
}

#[test]
fn a_module_is_opened_anew_where_its_folder_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Store::open(dir.path(), spec(), &Options::default()).unwrap();
    let first = open();
    compute(&first, &["a"], 1);
    first.flush().unwrap();
    first.invalidate(&keys(&["b"])).unwrap();
    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    // No change names it: it waits, whether the lookup, or a background thread before it, notices or not.
    compute(&first, &["c"], 1);
    first.flush().unwrap_err();
    let second = open();
    compute(&second, &["a"], 2);
    second.flush().unwrap();
    assert_eq!(values(&process(dir.path()), &["a"]), [2]);
    assert!(first.flush().unwrap_err().to_string().contains("removed and created again"));
}

#[test]
fn each_user_of_a_store_learns_of_its_own_losses_once_whichever_flushes_first() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, off) = unwritable(ErrorKind::StorageFull);
    let store = with_operations(dir.path(), steps);
    let program = Arc::new(Losses::new());
    let [a, b, idle] = [(); 3].map(|()| Losses::new().within(&program));
    let insert = |losses: &Arc<Losses>, key: &str| {
        let mut rows = store.lookup(keys(&[key])).unwrap();
        store.insert_for(losses, &mut rows, &[0], column(&[1]), None).unwrap();
    };
    insert(&a, "kept");
    off.store(true, SeqCst);
    store.flush_for(&b).unwrap_err();
    insert(&a, "x");
    insert(&b, "y");
    insert(&b, "z");
    off.store(false, SeqCst);
    let said =
        |flushed: crate::Result<()>| flushed.map_or_else(|error| format!("{error:#}"), |()| String::new());
    store.flush_for(&idle).unwrap();
    store.flush().unwrap();
    let lost = said(store.flush_for(&a));
    assert!(lost.starts_with("1 computed row was not kept: "), "{lost}");
    let lost = said(store.flush_for(&b));
    assert!(lost.starts_with("2 computed rows were not kept: "), "{lost}");
    let lost = said(program.check());
    assert!(lost.starts_with("3 computed rows were not kept: "), "{lost}");
    assert_eq!(said(program.take()), lost);
    for losses in [&a, &b, &program] {
        store.flush_for(losses).unwrap();
    }
    assert_eq!(values(&process(dir.path()), &["kept", "x", "y", "z"]), [1, -1, -1, -1]);
}

#[test]
fn the_losses_of_a_call_that_is_over_are_those_of_its_handle() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, off) = unwritable(ErrorKind::StorageFull);
    let store = with_operations(dir.path(), steps);
    let program = Arc::new(Losses::new());
    let handle = Losses::new().within(&program);
    let call = handle.for_call();
    let lose = |key: &str| {
        let mut rows = store.lookup(keys(&[key])).unwrap();
        store.insert_for(&call, &mut rows, &[0], column(&[1]), None).unwrap();
    };
    compute(&store, &["kept"], 1);
    off.store(true, SeqCst);
    store.flush().unwrap_err();
    lose("taken");
    call.take().unwrap_err();
    lose("before");
    call.hand_over(&handle);
    lose("later");
    call.take().unwrap();
    for (losses, rows) in [(&handle, 2), (&program, 3)] {
        let message = losses.take().unwrap_err().to_string();
        assert!(message.starts_with(&format!("{rows} computed rows were not kept")), "{message}");
    }
}

#[test]
fn names_of_others_that_cannot_be_synced_keep_no_row_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let off = Arc::new(AtomicBool::new(false));
    let is_off = off.clone();
    let rule = move |_, step: &str, _: &Path| {
        (step == "sync_dir" && is_off.load(SeqCst)).then_some(Fault::Refused(ErrorKind::Other))
    };
    let (store, other) = (with_operations(dir.path(), Faulty::with(rule)), process(dir.path()));
    compute(&other, &["a"], 1);
    other.flush().unwrap();
    assert_eq!(values(&store, &["a"]), [1]);
    off.store(true, SeqCst);
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("cannot sync"), "{error}");
    off.store(false, SeqCst);
    compute(&store, &["b"], 2);
    store.writer().unwrap().seal();
    // The writer takes one request after the other.
    store.end_session();
    let is_written = store.core.buffer.oldest_after(None).is_some() || store.stats().rows_sealed > 0;
    assert!(is_written, "the row waits for a request to flush");
    store.flush().unwrap();
}
