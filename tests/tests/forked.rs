//! Forked processes: what a child can do with the caches of its parent and with its own, and that it never waits for a thread of
//! the parent.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fmt::Debug;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use tcx::{Cache, CacheableOutput, Cached, Extractor, Mode, Result, Table, Tuning, cached_module};
use tcx_engine_tests::child::in_child;
use tcx_tests::{Scaled, wait_until};

const FORKED: &str = "was opened before this process was forked";
const OPEN_AGAIN: &str = "open the cache again in this process";
const TEXTS: &str = "forked_texts_v1";

/// The sample that is computed until [`RELEASED`].
const LONG: i64 = 7;
static ENTERED: AtomicBool = AtomicBool::new(false);
static RELEASED: AtomicBool = AtomicBool::new(false);
/// How many modules were dropped.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

#[cached_module(id = "forked_squares_v1", key = i64, output(square: Vec<i64>, text: Vec<String>))]
struct Squares;

#[derive(CacheableOutput)]
struct Square {
    square: Vec<i64>,
}

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = SquaresOutput;

    fn forward(&self, inputs: &Vec<i64>) -> Result<SquaresOutput> {
        if inputs.contains(&LONG) {
            ENTERED.store(true, Ordering::Release);
            wait_until("the long sample may end", || RELEASED.load(Ordering::Acquire));
        }
        let text = inputs.iter().map(ToString::to_string).collect();
        Ok(SquaresOutput { square: inputs.iter().map(|x| x * x).collect(), text })
    }
}

impl Drop for Squares {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache that writes nothing by itself during a test.
fn open(dir: &Path) -> Cache {
    Cache::builder().tuning(Tuning::new().flush_interval(Duration::from_hours(1))).open(dir).unwrap()
}

fn forward(squares: &Cached<Squares>, ids: &[i64]) {
    let expected: Vec<i64> = ids.iter().map(|id| id * id).collect();
    assert_eq!(squares.forward(ids, &ids.to_vec()).unwrap().square, expected);
}

fn check_found(squares: &Cached<Squares>, ids: &[i64]) {
    let found = squares.fetch(ids, |_| panic!("a row of {ids:?} is missing")).unwrap();
    assert_eq!(found.square, ids.iter().map(|id| id * id).collect::<Vec<_>>());
    assert_eq!(found.text, ids.iter().map(ToString::to_string).collect::<Vec<_>>());
}

fn assert_refused<T>(action: &str, result: Result<T>) {
    let Err(error) = result else { panic!("{action} is not refused") };
    let said = error.to_string();
    assert!(said.contains(FORKED) && said.ends_with(OPEN_AGAIN), "{action}: {said}");
    assert_eq!(error.kind(), tcx::ErrorKind::Forked, "{action}: {error}");
    assert_eq!(error.remedy(), Some(OPEN_AGAIN), "{action}");
}

/// What a child can do with a module that it has inherited, in which `durable` are flushed.
fn check_inherited(squares: &Cached<Squares>, durable: &[i64]) {
    check_found(squares, durable);
    let part = squares.fields::<Square>().unwrap();
    for _ in 0..2 {
        let found = part.fetch(durable, |_| unreachable!("they are there")).unwrap();
        assert_eq!(found.square.len(), durable.len());
    }
    assert_eq!(squares.coverage(&[durable[0], -1]).unwrap().missing(), [1]);
    assert_eq!(squares.prefetch(durable).unwrap(), durable.len());
    squares.refresh().unwrap();
    assert!(squares.stats().hits > 0 && squares.disk_usage().unwrap().bytes > 0);

    let ids = [durable[0], -1];
    assert_refused("forward", squares.forward(&ids, &ids.to_vec()));
    assert_refused("forward a view", squares.view(3).forward(&ids, &ids.to_vec()));
    assert_refused("forward fields", part.forward(&ids, &ids.to_vec()));
    assert_refused("fetch", squares.fetch(&ids, |_| unreachable!("nothing is loaded in vain")));
    assert_refused("warm", squares.warm(&ids, |_| unreachable!("nothing is loaded in vain")));
    assert_refused("verify", squares.verify(1., 0, |_| unreachable!("nothing is loaded in vain")));
    assert_refused("flush", squares.flush());
    assert_refused("invalidate", squares.invalidate(&ids));
    assert_refused("invalidate where", squares.invalidate_where(|_| true));
    assert_refused("invalidate by age", squares.invalidate_older_than(SystemTime::now()));
    assert_refused("invalidate all", squares.invalidate_all());
    assert!(!squares.release());
}

/// What a child can do with a cache that it has inherited.
fn check_inherited_cache(cache: &Cache) {
    assert_refused("open a module", cache.module(Squares));
    assert_refused("open a module in another mode", cache.with_mode(Mode::Off).module(Squares));
    assert_refused("open a table", cache.table::<Vec<i64>>(TEXTS));
    assert_refused("flush the cache", cache.flush());
    assert_refused("close the cache", cache.clone().close());
    assert!(cache.path().is_absolute());
}

/// What a child can do with a table that it has inherited, in which `a` is flushed.
fn check_inherited_table(table: &Table<Vec<i64>>) {
    assert_eq!(table.get(&["a"]).unwrap(), Some(vec![1]));
    assert_eq!(table.get(&["a", "new"]).unwrap(), None);
    assert_eq!(table.coverage(&["a", "new"]).unwrap().missing(), [1]);
    assert_eq!(table.get_or_compute(&["a"], |_| unreachable!("it is there")).unwrap(), [1]);
    let compute = |_: tcx::Missing<'_, &str>| -> Result<Vec<i64>> { unreachable!("nothing is computed") };
    assert_refused("get or compute", table.get_or_compute(&["a", "new"], compute));
    assert_refused("put", table.put(&["new"], &vec![2]));
    assert_refused("replace", table.replace(&["a"], &vec![2]));
    assert_refused("invalidate", table.invalidate(&["a"]));
    assert_refused("flush", table.flush());
}

/// Lines that are logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged while it drops something.
fn logged_by_drop(value: impl Debug) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    tracing::subscriber::with_default(subscriber, || drop(value));
    String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_child_forked_while_its_parent_computes_reads_and_opens_the_cache_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let (squares, table) = (cache.module(Squares).unwrap(), cache.table::<Vec<i64>>(TEXTS).unwrap());
    forward(&squares, &[1, 2]);
    table.put(&["a"], &vec![1]).unwrap();
    cache.flush().unwrap();
    forward(&squares, &[3]);
    table.put(&["b"], &vec![2]).unwrap();
    // A handle that the child drops, and one that the parent computes with.
    let second = cache.module(Squares).unwrap();
    check_found(&second, &[1]);
    let computed_with = cache.module(Squares).unwrap();
    let mut handles = Some((cache, squares, table, second));
    std::thread::scope(|scope| {
        let _released = Released;
        let computing = scope.spawn(|| forward(&computed_with, &[LONG]));
        wait_until("the parent computes", || ENTERED.load(Ordering::Acquire));
        in_child(dir.path(), || {
            let (cache, squares, table, second) = handles.take().unwrap();
            check_inherited(&squares, &[1, 2]);
            check_inherited(&computed_with, &[1, 2]);
            assert_eq!(squares.coverage(&[3]).unwrap().missing(), [0], "the parent's buffer is the parent's");
            check_inherited_table(&table);
            check_inherited_cache(&cache);
            let dropped = DROPPED.load(Ordering::Relaxed);
            let logged = logged_by_drop((squares, table, second, cache));
            assert_eq!(logged, "", "the parent's cache was summed up");
            assert_eq!(DROPPED.load(Ordering::Relaxed), dropped, "a module of the parent was dropped");

            let own = open(dir.path());
            let squares = own.module(Squares).unwrap();
            forward(&squares, &[1, 2, 8]);
            assert_eq!(squares.stats().rows_computed, 1);
            own.table::<Vec<i64>>(TEXTS).unwrap().put(&["of the child"], &vec![3]).unwrap();
            own.flush().unwrap();
            in_child(dir.path(), || check_inherited(&squares, &[1, 8]));
            forward(&squares, &[9]);
            own.close().unwrap();
        });
        RELEASED.store(true, Ordering::Release);
        computing.join().unwrap();
    });
    let (cache, squares, ..) = handles.as_ref().unwrap();
    check_found(squares, &[1, 2, 3, LONG]);
    cache.flush().unwrap();
    drop((handles, computed_with));
    let cache = open(dir.path());
    check_found(&cache.module(Squares).unwrap(), &[1, 2, 3, LONG, 8, 9]);
    let table = cache.table::<Vec<i64>>(TEXTS).unwrap();
    assert_eq!(table.get(&["a", "b", "of the child"]).unwrap(), Some(vec![1, 2, 3]));
}

/// Ends the long sample, even if a child fails.
struct Released;

impl Drop for Released {
    fn drop(&mut self) {
        RELEASED.store(true, Ordering::Release);
    }
}

/// Opens, computes, finds, flushes and closes until `done`, so that some lock is held at every moment.
fn work(cache: &Cache, squares: &Cached<Squares>, dir: &Path, number: i64, done: &AtomicBool) {
    for round in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let first = 1_000_000 * number + 10 * round;
        let ids: Vec<i64> = (first..first + 10).collect();
        forward(squares, &ids);
        check_found(squares, &[1, 2]);
        check_found(&cache.module(Squares).unwrap(), &ids);
        cache.table::<Vec<i64>>(TEXTS).unwrap().put(&[format!("{first}")], &vec![first]).unwrap();
        cache.flush().unwrap();
        let own = open(dir);
        check_found(&own.module(Squares).unwrap(), &ids);
    }
}

#[test]
fn a_child_waits_for_no_lock_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let (squares, table) = (cache.module(Squares).unwrap(), cache.table::<Vec<i64>>(TEXTS).unwrap());
    forward(&squares, &[1, 2]);
    table.put(&["a"], &vec![1]).unwrap();
    cache.flush().unwrap();
    let done = AtomicBool::new(false);
    let mut droppable = Some((cache.clone(), cache.module(Squares).unwrap()));
    std::thread::scope(|scope| {
        for number in 1..4 {
            let (cache, squares, dir, done) = (&cache, &squares, dir.path(), &done);
            scope.spawn(move || work(cache, squares, dir, number, done));
        }
        let _done = Done(&done);
        for round in 0..20 {
            in_child(dir.path(), || {
                check_inherited(&squares, &[1, 2]);
                check_inherited_table(&table);
                check_inherited_cache(&cache);
                drop(droppable.take());
                let own = open(dir.path());
                forward(&own.module(Squares).unwrap(), &[1, -2 - round]);
                own.close().unwrap();
            });
        }
    });
    drop((droppable, squares, table));
    cache.close().unwrap();
    let of_children: Vec<i64> = (0..20).map(|round| -2 - round).collect();
    check_found(&open(dir.path()).module(Squares).unwrap(), &of_children);
}

/// Ends the other threads, even if a child fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_handles_of_statics_are_written_by_the_process_that_opened_them() {
    static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    static OF_PARENT: LazyLock<Cached<Squares>> = LazyLock::new(|| open(DIR.path()).module(Squares).unwrap());
    static OF_CHILD: LazyLock<Cached<Squares>> = LazyLock::new(|| open(DIR.path()).module(Squares).unwrap());
    forward(&OF_PARENT, &[1]);
    // The handlers of the system run, as at the end of `main`.
    in_child(DIR.path(), || std::process::exit(0));
    assert!(!DIR.path().join("forked_squares_v1").exists(), "the parent's rows are the parent's");
    in_child(DIR.path(), || {
        forward(&OF_CHILD, &[2]);
        std::process::exit(0);
    });
    let other = open(DIR.path()).with_mode(Mode::ReadOnly).module(Squares).unwrap();
    other.refresh().unwrap();
    check_found(&other, &[2, 1]);
    assert_eq!(OF_PARENT.stats().buffered_rows, 1);
    OF_PARENT.flush().unwrap();
}

#[test]
fn a_child_computes_with_a_network_of_its_own() {
    // The threads of OpenMP stay in the parent.
    tch::set_num_threads(1);
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let scaled = cache.module(Scaled::new(3.)).unwrap();
    let forward = |scaled: &Cached<Scaled>, ids: &[i64]| {
        Scaled::check(&scaled.forward(ids, &Scaled::input(ids)).unwrap(), ids, 3.);
    };
    forward(&scaled, &[1, 2]);
    cache.flush().unwrap();
    forward(&scaled, &[3]);
    in_child(dir.path(), || {
        forward(&scaled, &[2, 1]);
        assert_refused("forward", scaled.forward(&[1, 4], &Scaled::input(&[1, 4])));
        let own = open(dir.path());
        forward(&own.module(Scaled::new(3.)).unwrap(), &[1, 4]);
        own.close().unwrap();
    });
    cache.close().unwrap();
    drop(scaled);
    let scaled = open(dir.path()).module(Scaled::new(3.)).unwrap();
    forward(&scaled, &[1, 2, 3, 4]);
    assert_eq!(scaled.stats().rows_computed, 0);
}

#[test]
fn a_child_ends_the_epoch_of_its_parent_and_begins_none_with_inherited_handles() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let squares = Arc::new(cache.module(Squares).unwrap());
    forward(&squares, &[1, 2, 3]);
    cache.flush().unwrap();
    let mut batches = squares.epoch(&[1, 2, 3]).batch_size(1).into_iter();
    assert_eq!(batches.next().unwrap().unwrap().1.square, [1]);
    let (mut inherited, own) = (Some(batches), squares.clone());
    in_child(dir.path(), || {
        let mut batches = inherited.take().unwrap();
        assert_refused("go on with an epoch", batches.next().unwrap());
        assert!(batches.next().is_none());
        drop(batches);
        assert_refused("begin an epoch", own.epoch(&[1]).into_iter().next().unwrap());
    });
    let rest: Vec<_> = inherited.take().unwrap().map(|batch| batch.unwrap().1.square[0]).collect();
    assert_eq!(rest, [4, 9]);
}
