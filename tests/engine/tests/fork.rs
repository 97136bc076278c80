//! A process that is forked after a store was opened: the parent's rows are the parent's, and the child never waits for what
//! only the parent has.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tcx_engine_tests::child::in_child;
use tcx_engine_tests::{check, columns, files, get_or_compute, lookup, open, options, spec};
use tcx_store::{
    Compression, ErrorKind, Keys, LookupOptions, Memory, Options, ReadMode, RecomputeSession, Result, Store,
};

const OPEN_AGAIN: &str = "was opened before this process was forked, and its background threads run in the parent process only: \
                          open the cache again in this process";

fn assert_refused<T: std::fmt::Debug>(action: &str, result: Result<T>) {
    let error = result.expect_err(action);
    assert_eq!(error.kind(), ErrorKind::Forked, "{action}");
    assert!(error.to_string().ends_with(OPEN_AGAIN), "{action}: {error}");
}

/// What a child sees of a store that it has inherited, in which `durable` are flushed.
fn check_inherited(store: &Store, durable: &[&str]) {
    assert!(store.is_inherited());
    check(&lookup(store, durable), durable);
    let before = store.stats();
    assert_eq!(get_or_compute(store, &["only in the child"]), 1);
    assert_eq!(get_or_compute(store, &["only in the child"]), 1, "it is not kept");
    let after = store.stats();
    assert_eq!((after.misses - before.misses, after.rows_dropped - before.rows_dropped), (2, 2));
    let keys = Keys::text(["a"], 0).unwrap();
    assert_refused("flush", store.flush());
    assert_refused("compact", store.compact());
    assert_refused("collect", store.collect(Duration::ZERO));
    assert_refused("make room", store.make_room(1));
    assert_refused("invalidate", store.invalidate(&keys));
    assert_refused("invalidate all", store.invalidate_all());
    assert_refused("invalidate where", store.invalidate_where(|_| true));
    assert_refused("invalidate by age", store.invalidate_older_than(SystemTime::now()));
    store.end_session();
    store.refresh().unwrap();
    assert!(!store.stats().is_writing_off && !store.is_full());
    assert_eq!(store.prefetch(keys.clone()).unwrap(), 1);
    assert!(store.disk_usage().unwrap().bytes > 0);
    assert_eq!(
        store
            .lookup_with(
                keys,
                LookupOptions {
                    recompute: Some(&RecomputeSession::new()),
                    uncounted: true,
                    ..LookupOptions::default()
                }
            )
            .unwrap()
            .missing(),
        1
    );
}

#[test]
fn a_child_reads_inherited_stores_and_writes_to_those_it_opens() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a", "b"]);
    store.flush().unwrap();
    get_or_compute(&store, &["buffered"]);
    let mut half = lookup(&store, &["a", "half"]);
    let segments = files(dir.path(), "seg-").len();
    in_child(dir.path(), || {
        check_inherited(&store, &["a", "b"]);
        assert_eq!(lookup(&store, &["buffered"]).missing(), 1, "the parent's buffer is the parent's");
        store.insert(&mut half, &[1], columns(&["half"])).unwrap();
        check(&half, &["a", "half"]);
        drop(store);
        assert_eq!(files(dir.path(), "seg-").len(), segments, "the child has sealed rows of its parent");

        let own = open(dir.path());
        assert!(!own.is_inherited());
        assert_eq!(get_or_compute(&own, &["a", "b", "of the child"]), 1);
        own.flush().unwrap();
        own.invalidate(&Keys::text(["b"], 0).unwrap()).unwrap();
        in_child(dir.path(), || {
            check_inherited(&own, &["a", "of the child"]);
            assert_eq!(get_or_compute(&open(dir.path()), &["a", "of the grandchild"]), 1);
        });
        own.compact().unwrap();
        own.collect(Duration::ZERO).unwrap();
    });
    let store = open(dir.path());
    assert_eq!(lookup(&store, &["buffered"]).missing(), 0, "the parent has lost a row");
    store.flush().unwrap();
    drop(store);
    let store = open(dir.path());
    let all = ["a", "buffered", "of the child", "of the grandchild"];
    check(&lookup(&store, &all), &all);
    assert_eq!(lookup(&store, &["b", "half", "only in the child"]).missing(), 3);
}

#[test]
fn a_child_reads_what_its_parent_had_in_memory() {
    let (dir, memory) = (tempfile::tempdir().unwrap(), Memory::new());
    let open = || Store::open_in_memory(&memory, spec("1"), &options()).unwrap();
    let store = open();
    get_or_compute(&store, &["a", "b"]);
    store.flush().unwrap();
    get_or_compute(&store, &["buffered"]);
    in_child(dir.path(), || {
        check_inherited(&store, &["a", "b"]);
        assert_eq!(lookup(&store, &["buffered"]).missing(), 1, "the parent's buffer is the parent's");
        // From here on, each has its own copy.
        let own = open();
        assert_eq!(get_or_compute(&own, &["a", "b", "of the child"]), 1);
        own.flush().unwrap();
        check(&lookup(&own, &["a", "of the child"]), &["a", "of the child"]);
    });
    assert_eq!(lookup(&store, &["a", "buffered", "of the child"]).missing(), 1);
}

#[test]
fn a_child_notices_what_others_invalidate() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a", "b"]);
    store.flush().unwrap();
    in_child(dir.path(), || {
        check(&lookup(&store, &["a", "b"]), &["a", "b"]);
        open(dir.path()).invalidate(&Keys::text(["a"], 0).unwrap()).unwrap();
        store.refresh().unwrap();
        assert_eq!(lookup(&store, &["a", "b"]).distinct_missing_positions(), [0]);
    });
}

/// Opens, fills, flushes, compacts and closes stores until `done`, so that some lock is held at every moment.
fn work(dir: &Path, number: usize, options: &Options, done: &AtomicBool) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let store = Store::open(dir, spec("224"), options).unwrap();
        let ids: Vec<String> = (0..20).map(|id| format!("{number}-{round}-{id}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        get_or_compute(&store, &ids);
        get_or_compute(&store, &["a", "b"]);
        store.flush().unwrap();
        if round % 4 == 3 {
            store.compact().unwrap();
            store.collect(Duration::ZERO).unwrap();
        }
    }
}

#[test]
fn a_child_waits_for_no_lock_that_another_thread_of_its_parent_held() {
    let dir = tempfile::tempdir().unwrap();
    let hot = Options { compression: Compression::Lz4, read_mode: ReadMode::Pread, ..options() };
    let other = tempfile::tempdir_in(dir.path()).unwrap();
    let (store, second) = (open(dir.path()), Store::open(other.path(), spec("224"), &hot).unwrap());
    for store in [&store, &second] {
        get_or_compute(store, &["a", "b"]);
        store.flush().unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (dir, other, hot, done) = (dir.path(), other.path(), &hot, &done);
            scope.spawn(move || work(dir, number, &options(), done));
            scope.spawn(move || work(other, number, hot, done));
        }
        // Ends the other children, too, if one fails.
        let _done = Done(&done);
        for round in 0..20 {
            in_child(dir.path(), || {
                let id = format!("child {round}");
                for (store, dir, options) in [(&store, dir.path(), &options()), (&second, other.path(), &hot)]
                {
                    check_inherited(store, &["a", "b"]);
                    let own = Store::open(dir, spec("224"), options).unwrap();
                    assert_eq!(get_or_compute(&own, &["a", &id]), 1);
                    own.flush().unwrap();
                }
                drop((store.clone(), second.clone()));
            });
        }
    });
    for (dir, options) in [(dir.path(), &options()), (other.path(), &hot)] {
        let store = Store::open(dir, spec("224"), options).unwrap();
        for round in 0..20 {
            assert_eq!(lookup(&store, &[&format!("child {round}")]).missing(), 0, "of child {round}");
        }
    }
}

#[test]
fn rows_that_waited_for_their_folder_are_written_at_the_end_though_the_module_was_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, away) = (dir.path().join("m_v1"), dir.path().join("away"));
    in_child(dir.path(), || {
        let store = open(dir.path());
        get_or_compute(&store, &["a"]);
        store.flush().unwrap();
        store.invalidate(&Keys::text(["b"], 0).unwrap()).unwrap();
        get_or_compute(&store, &["buffered"]);
        std::fs::rename(&folder, &away).unwrap();
        store.flush().unwrap_err();
        let again = open(dir.path());
        assert_eq!(lookup(&again, &["a"]).missing(), 1, "another store");
        std::fs::rename(&away, &folder).unwrap();
        std::mem::forget((store, again));
        std::process::exit(0);
    });
    check(&lookup(&open(dir.path()), &["a", "buffered"]), &["a", "buffered"]);
}

/// Records and forgets checks until `done`, so that their lock is held most of the time.
fn record(store: &Store, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        store.record_passed("checks of the parent");
        store.forget_passed("checks of the parent");
    }
}

#[test]
fn a_child_that_records_checks_waits_for_no_lock_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a"]);
    store.record_passed("of the parent");
    store.flush().unwrap();
    while !store.has_passed("of the parent") {
        std::thread::sleep(Duration::from_millis(2));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| record(&store, &done));
        let _done = Done(&done);
        for _ in 0..20 {
            in_child(dir.path(), || {
                store.record_passed("of the child");
                store.forget_passed("of the parent");
                assert!(!store.has_passed("of the parent"), "what a child finds out counts");
            });
        }
    });
}

/// Drops the pages of all files; `false` if the system cannot.
#[cfg(target_os = "linux")]
fn drop_pages(dir: &Path) -> bool {
    let drop_pages_of = |path: &Path| {
        let file = std::fs::File::open(path)?;
        file.sync_all()?;
        Ok::<_, std::io::Error>(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
    };
    files(dir, "seg-").iter().all(|path| drop_pages_of(path).is_ok())
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_reads_wide_rows_though_threads_of_the_parent_were_reading_some_at_the_fork() {
    use std::mem::MaybeUninit;
    use tcx_store::{Column, ColumnType, DType, Destination, Identity, KeyType, Spec};
    const WIDTH: usize = 50_000;
    const ROWS: i64 = 64;
    let output = ColumnType::Dense { dtype: DType::U8, shape: &[WIDTH] };
    let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    // On a disk: of a folder in memory nothing can be dropped.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(dir.path(), spec, &options()).unwrap();
    let row = |id: i64| vec![id as u8; WIDTH];
    let mut rows = store.lookup(Keys::ints(0..ROWS, 0)).unwrap();
    let positions: Vec<usize> = (0..rows.len()).collect();
    let values: Vec<u8> = (0..ROWS).flat_map(row).collect();
    store.insert(&mut rows, &positions, vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
    let check = || {
        let rows = store.lookup(Keys::ints(0..ROWS, 0)).unwrap();
        assert_eq!(rows.missing(), 0);
        (0..ROWS).for_each(|id| assert!(rows.bytes(0, id as usize) == row(id), "row {id}"));
    };
    // Looks at no page of the map, or the system would not drop it.
    let read = || {
        let mut bytes = vec![MaybeUninit::uninit(); WIDTH * ROWS as usize];
        let destinations = &mut [Destination { leaf: 0, bytes: &mut bytes }];
        let options = LookupOptions { destinations, ..LookupOptions::default() };
        assert_eq!(store.lookup_with(Keys::ints(0..ROWS, 0), options).unwrap().missing(), 0);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) && drop_pages(dir.path()) {
                    read();
                }
            });
        }
        let _done = Done(&done);
        for _ in 0..20 {
            in_child(dir.path(), || (0..3).for_each(|_| check()));
        }
    });
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_that_ends_by_itself_writes_what_it_has_computed_and_leaves_the_parents_rows_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["buffered"]);
    // `exit` calls the handlers of the process, where `in_child` would not.
    in_child(dir.path(), || std::process::exit(0));
    assert_eq!(store.stats().buffered_rows, 1);
    let folder = dir.path().join(store.path().file_name().unwrap());
    assert!(!folder.exists(), "the parent's rows are the parent's");
    in_child(dir.path(), || {
        let own = open(dir.path());
        get_or_compute(&own, &["of the child"]);
        std::mem::forget(own);
        std::process::exit(0);
    });
    store.refresh().unwrap();
    check(&lookup(&store, &["of the child", "buffered"]), &["of the child", "buffered"]);
}
