//! A flush answers for all rows: each handle for its own, the cache for every row that was
//! accepted through it.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tcx::{Cache, Mode, Table};
use tcx_tests::{Scaled, wait_until};
use tracing::span::{Attributes, Id};
use tracing::subscriber::with_default;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

fn table(cache: &Cache) -> Table<Vec<i64>> {
    cache.table("numbers_v1").unwrap()
}

fn said<T>(result: tcx::Result<T>) -> String {
    result.map_or_else(|error| format!("{error:#}"), |_| String::new())
}

#[test]
fn each_handle_learns_of_its_own_losses_once_whichever_flushes_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let cache = Cache::open(&path).unwrap();
    let [a, b, idle] = [(); 3].map(|()| cache.module(Scaled::new(3.)).unwrap());
    // No folder can be created at this path.
    fs::write(&path, b"a file").unwrap();
    a.forward(&[1], &Scaled::input(&[1])).unwrap();
    assert!(!said(a.flush()).is_empty());
    a.forward(&[2], &Scaled::input(&[2])).unwrap();
    b.forward(&[3, 4], &Scaled::input(&[3, 4])).unwrap();
    fs::remove_file(&path).unwrap();
    // `warm` flushes, and this handle has lost nothing.
    idle.warm(&[1], |_| unreachable!("it is in the buffer")).unwrap();
    assert!(said(a.flush()).contains("1 computed row was not kept"));
    assert!(said(b.flush()).contains("2 computed rows were not kept"));
    assert_eq!([a.flush(), b.flush(), idle.flush()].map(said), [""; 3]);
    assert!(said(cache.flush()).contains("3 computed rows were not kept"));
    cache.flush().unwrap();
    let again = Cache::open(&path).unwrap().with_mode(Mode::ReadOnly).module(Scaled::new(3.)).unwrap();
    assert_eq!(again.coverage(&[1, 2, 3, 4]).unwrap().missing(), [1, 2, 3]);
}

#[test]
fn a_cache_answers_for_rows_of_a_store_that_was_replaced_while_its_folder_was_away() {
    let dir = tempfile::tempdir().unwrap();
    let (own, away) = (dir.path().join("numbers_v1"), dir.path().join("away"));
    let cache = Cache::open(dir.path()).unwrap();
    let first = table(&cache);
    first.put(&["a", "b"], &vec![1, 2]).unwrap();
    cache.flush().unwrap();
    // A process that knew changes in a folder does not create it again.
    first.invalidate(&["a"]).unwrap();
    fs::rename(&own, &away).unwrap();
    first.get_or_compute(&["c"], |_| Ok(vec![3])).unwrap();
    assert!(!said(first.flush()).is_empty());
    let second = table(&cache);
    assert_eq!(second.get(&["c"]).unwrap(), None, "it is another store");
    assert!(!said(cache.flush()).is_empty(), "a row is in the buffer of the first");
    fs::rename(&away, &own).unwrap();
    cache.flush().unwrap();
    // The second store lists its folder at most ten times a second.
    wait_until("the first store's row is found", || second.get(&["b", "c"]).unwrap() == Some(vec![2, 3]));
    first.put(&["d"], &vec![4]).unwrap();
    cache.flush().unwrap();
    wait_until("its later row is found", || second.get(&["d"]).unwrap() == Some(vec![4]));
}

#[test]
fn a_close_after_one_that_failed_answers_for_the_same_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let cache = Cache::open(&path).unwrap();
    let numbers = table(&cache);
    numbers.put(&["a"], &vec![1]).unwrap();
    // Before the writer creates the folder for the row.
    fs::write(&path, b"a file").unwrap();
    assert!(!said(cache.clone().close()).is_empty());
    assert!(!said(cache.clone().close()).is_empty(), "the row is still in memory");
    fs::remove_file(&path).unwrap();
    cache.clone().close().unwrap();
    cache.close().unwrap();
    assert_eq!(table(&Cache::open(&path).unwrap()).get(&["a"]).unwrap(), Some(vec![1]));
}

#[test]
fn rows_that_are_lost_are_an_error_of_every_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let cache = Cache::open(&path).unwrap();
    let (module, numbers) = (cache.module(Scaled::new(3.)).unwrap(), table(&cache));
    fs::write(&path, b"a file").unwrap();
    module.forward(&[1], &Scaled::input(&[1])).unwrap();
    assert!(!said(module.flush()).is_empty());
    // Writing is off.
    module.forward(&[2], &Scaled::input(&[2])).unwrap();
    assert!(!said(numbers.put(&["a"], &vec![1])).is_empty(), "the folder cannot be listed");
    fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        assert!(said(cache.clone().close()).contains("1 computed row was not kept"));
    }
}

#[test]
fn a_time_to_live_is_over_in_the_write_buffer_too_and_a_huge_one_never() {
    let dir = tempfile::tempdir().unwrap();
    let open = |time| Cache::builder().time_to_live(time).open(dir.path()).unwrap();
    let cache = open(Duration::from_millis(1));
    let numbers = table(&cache);
    numbers.put(&["a"], &vec![1]).unwrap();
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(numbers.get(&["a"]).unwrap(), None);
    assert_eq!(numbers.coverage(&["a"]).unwrap().found(), 0);
    assert_eq!(numbers.get_or_compute(&["a"], |_| Ok(vec![2])).unwrap(), [2]);
    drop((numbers, cache));
    let numbers = table(&open(Duration::from_millis(u64::MAX) + Duration::from_millis(2)));
    numbers.put(&["b"], &vec![3]).unwrap();
    std::thread::sleep(Duration::from_millis(3));
    assert_eq!(numbers.get(&["b"]).unwrap(), Some(vec![3]));
}

/// What is done once, at the beginning of the next flush of this thread.
struct AtFlush<F>(F, AtomicBool);

impl<S: tracing::Subscriber, F: Fn() + 'static> Layer<S> for AtFlush<F> {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if attributes.metadata().name() == "flush" && !self.1.swap(true, Ordering::SeqCst) {
            (self.0)();
        }
    }
}

fn at_flush<R>(does: impl Fn() + Send + Sync + 'static, call: impl FnOnce() -> R) -> R {
    with_default(registry().with(AtFlush(does, AtomicBool::new(false))), call)
}

/// A cache with the number `a`, and a folder whose changes invalidate `a` and `b`, as another process would.
fn with_changes_of_another_process() -> (tempfile::TempDir, Cache, tempfile::TempDir) {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [cache, elsewhere] = [&dir, &other].map(|dir| Cache::open(dir.path()).unwrap());
    for cache in [&cache, &elsewhere] {
        table(cache).put(&["a"], &vec![1]).unwrap();
        cache.flush().unwrap();
    }
    for id in ["a", "b"] {
        table(&elsewhere).invalidate(&[id]).unwrap();
    }
    (dir, cache, other)
}

#[test]
fn a_replacement_learns_of_its_own_losses_though_another_thread_flushes_the_same_handle() {
    let (dir, cache, other) = with_changes_of_another_process();
    let change = |number| format!("numbers_v1/change-{number:020}");
    let (from, to) = (other.path().to_owned(), dir.path().to_owned());
    let invalidates = move |number| {
        fs::copy(from.join(change(number)), to.join(change(number))).unwrap();
    };
    let numbers = Arc::new(table(&cache));
    let (own, once) = (numbers.clone(), invalidates.clone());
    let meanwhile = move || {
        once(1);
        let own = own.clone();
        assert_eq!(said(std::thread::spawn(move || own.flush()).join().unwrap()), "");
    };
    let replaced = said(at_flush(meanwhile, || numbers.replace(&["a"], &vec![2])));
    let is_loss =
        |said: &str| said.contains("1 computed row was not kept") && said.contains("another process");
    assert!(is_loss(&replaced), "{replaced}");
    assert_eq!(numbers.get(&["a"]).unwrap(), None);
    assert_eq!(said(numbers.flush()), "", "the replacement has returned it");
    // What was put is a loss of the handle, as it returns before the value is written.
    numbers.put(&["b"], &vec![3]).unwrap();
    invalidates(2);
    let lost = said(numbers.flush());
    assert!(is_loss(&lost), "{lost}");
    assert!(said(cache.flush()).contains("2 computed rows were not kept"));
}
