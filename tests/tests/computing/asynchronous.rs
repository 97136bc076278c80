//! The asynchronous methods: they work in every runtime, do not delay its other tasks, and can be dropped.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tcx::{Cache, Cached, Error, Extractor, Missing, Result, cached_module};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Twice the input; notes what it was given.
#[cached_module(id = "async_doubles_v1", key = i64)]
struct Doubles {
    #[tcx(assume_stateless)]
    seen: Arc<Mutex<Vec<i64>>>,
}

impl Extractor for Doubles {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        assert!(!inputs.contains(&-1), "as asked");
        self.seen.lock().unwrap().extend(inputs);
        Ok(inputs.iter().map(|x| 2 * x).collect())
    }
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).build().unwrap(),
    ]
}

fn doubles(cache: &Cache) -> (Arc<Cached<Doubles>>, Arc<Mutex<Vec<i64>>>) {
    let seen = Arc::default();
    (Arc::new(cache.module(Doubles { seen: Arc::clone(&seen) }).unwrap().batch_size(4)), seen)
}

#[expect(clippy::unnecessary_wraps, reason = "a loader may fail")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

#[test]
fn every_form_works_in_every_runtime() {
    for runtime in runtimes() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let (doubles, _) = doubles(&cache);
        runtime.block_on(async {
            assert_eq!(doubles.fetch_owned(vec![1, 2], load).await.unwrap(), [2, 4]);
            assert_eq!(doubles.warm_async((0..10).collect(), load).await.unwrap().computed, 8);
            assert_eq!(doubles.prefetch_async(vec![1, 2, 77]).await.unwrap(), 2);
            doubles.flush_async().await.unwrap();
            cache.flush_async().await.unwrap();
            assert_eq!(doubles.stats().rows_sealed, 10);
            // A future belongs to no task.
            let found = tokio::spawn(doubles.fetch_owned(vec![9], load)).await.unwrap();
            assert_eq!(found.unwrap(), [18]);
            cache.close_async().await.unwrap();
            assert!(doubles.flush_async().await.unwrap_err().to_string().contains("was closed"));
        });
    }
}

#[test]
fn equal_requests_at_once_are_loaded_once_and_other_tasks_go_on_meanwhile() {
    for runtime in runtimes() {
        let dir = tempfile::tempdir().unwrap();
        let (doubles, seen) = doubles(&Cache::builder().recheck(0.).open(dir.path()).unwrap());
        // The checks of the first batch compute some samples again.
        doubles.forward(&[0, 1], &vec![0, 1]).unwrap();
        seen.lock().unwrap().clear();
        runtime.block_on(async {
            let (go, gone) = mpsc::channel();
            let (reached, first_misses) = oneshot::channel();
            let waits = move |missing: Missing<'_, i64>| {
                reached.send(()).unwrap();
                gone.recv().unwrap();
                load(missing)
            };
            let first = tokio::spawn(doubles.fetch_owned(vec![7], waits));
            // If the others began earlier, the first would have nothing to load.
            first_misses.await.unwrap();
            let never = |_: Missing<'_, i64>| panic!("it is being loaded");
            let others: Vec<_> = (0..8).map(|_| tokio::spawn(doubles.fetch_owned(vec![7], never))).collect();
            assert_eq!(doubles.fetch_owned(vec![9], load).await.unwrap(), [18]);
            go.send(()).unwrap();
            assert_eq!(first.await.unwrap().unwrap(), [14]);
            for other in others {
                assert_eq!(other.await.unwrap().unwrap(), [14]);
            }
        });
        assert_eq!(*seen.lock().unwrap(), [9, 7]);
    }
}

#[test]
fn a_panic_goes_on_in_the_task_that_awaits_and_poisons_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (doubles, _) = doubles(&Cache::open(dir.path()).unwrap());
    for runtime in runtimes() {
        runtime.block_on(async {
            let failed = tokio::spawn(doubles.fetch_owned(vec![-1], load)).await.unwrap_err();
            assert!(failed.is_panic());
            assert_eq!(doubles.fetch_owned(vec![3], load).await.unwrap(), [6]);
        });
    }
}

#[test]
fn dropped_warming_stops_after_the_batch_at_hand_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let (doubles, _) = doubles(&Cache::open(dir.path()).unwrap());
    let (reached, at_second) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let batches = AtomicUsize::new(0);
    let warming = doubles.warm_async((0..100).collect(), move |missing| {
        if batches.fetch_add(1, Ordering::SeqCst) == 1 {
            reached.send(()).unwrap();
            gone.recv().unwrap();
        }
        load(missing)
    });
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let task = tokio::spawn(warming);
        tokio::task::yield_now().await;
        at_second.recv().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        go.send(()).unwrap();
    });
    drop(runtime); // waits for what has begun
    let coverage = doubles.coverage(&(0..100).collect::<Vec<i64>>()).unwrap();
    assert_eq!(coverage.missing(), (8..100).collect::<Vec<_>>());
    assert_eq!(doubles.stats().rows_sealed, 8, "and it is durable");
}

#[test]
fn nothing_begins_before_it_is_polled_and_without_a_runtime_it_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (doubles, seen) = doubles(&Cache::open(dir.path()).unwrap());
    drop(doubles.fetch_owned(vec![1], load));
    let mut polled = pin!(doubles.fetch_owned(vec![1], load));
    let Poll::Ready(done) = polled.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("there is nothing to wait for")
    };
    let error = done.unwrap_err();
    assert_eq!(error.kind(), tcx::ErrorKind::NoRuntime);
    assert!(error.to_string().starts_with("there is no tokio runtime here; "), "{error}");
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn a_task_computes_missing_values_and_waits_without_a_thread_of_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = Arc::new(Cache::open(dir.path()).unwrap().table::<Vec<i64>>("lengths_v1").unwrap());
    lengths.put(&["a"], &vec![10]).unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let length = |missing: Missing<'_, &str>| Ok(missing.ids().map(|id| id.len() as i64).collect());
        let task = tokio::spawn(lengths.get_or_compute_async(vec!["a", "bb"], length));
        assert_eq!(task.await.unwrap().unwrap(), [10, 2]);
        let failed = lengths.get_or_compute_async(vec!["c"], |_| Err(Error::loader("no answer")));
        assert_eq!(failed.await.unwrap_err().module_id(), Some("lengths_v1"));
    });
    assert_eq!(lengths.get(&["a", "bb"]).unwrap(), Some(vec![10, 2]));
    let outside = lengths.get_or_compute_async(vec!["d"], |_| Ok(vec![1]));
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = pin!(outside).poll(&mut context) else { panic!("there is no runtime") };
    assert_eq!(error.kind(), tcx::ErrorKind::NoRuntime);
}

/// With two threads for blocking work: one that waits would leave none to what the closure asks for.
#[test]
fn requests_of_a_table_that_wait_for_each_other_have_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = Arc::new(Cache::open(dir.path()).unwrap().table::<Vec<i64>>("lengths_v1").unwrap());
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(2).build().unwrap();
        let length = |missing: Missing<'_, &str>| {
            let length = |id: &&str| {
                let length = id.len() as i64;
                let runtime = tokio::runtime::Handle::current();
                runtime.block_on(runtime.spawn_blocking(move || length)).unwrap()
            };
            Ok(missing.ids().map(length).collect())
        };
        runtime.block_on(async {
            let ids = [vec!["a"], vec!["bb"], vec!["ccc"], vec!["a", "dddd"]];
            let tasks = ids.map(|ids| tokio::spawn(lengths.get_or_compute_async(ids, length)));
            for (task, expected) in tasks.into_iter().zip([vec![1], vec![2], vec![3], vec![1, 4]]) {
                assert_eq!(task.await.unwrap().unwrap(), expected);
            }
        });
        done.send(lengths.stats().rows_computed).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(30)).expect("the tasks wait for each other"), 4);
}

#[test]
fn a_request_of_a_table_that_nothing_polls_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = Arc::new(Cache::open(dir.path()).unwrap().table::<Vec<i64>>("lengths_v1").unwrap());
    let length = |missing: Missing<'_, &str>| Ok(missing.ids().map(|id| id.len() as i64).collect());
    let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let (enter, entered) = oneshot::channel();
        let (release, released) = mpsc::channel();
        let first = tokio::spawn(lengths.get_or_compute_async(vec!["a"], move |_| {
            enter.send(()).unwrap();
            released.recv().unwrap();
            Ok(vec![1])
        }));
        entered.await.unwrap();
        let mut second = pin!(lengths.get_or_compute_async(vec!["bb"], length));
        // It waits for its turn, and is not polled any more.
        for _ in 0..20 {
            let mut context = Context::from_waker(Waker::noop());
            assert!(second.as_mut().poll(&mut context).is_pending());
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_millis(5));
        }
        release.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), [1]);
        let third = tokio::spawn(lengths.get_or_compute_async(vec!["ccc"], length));
        assert_eq!(third.await.unwrap().unwrap(), [3]);
        assert_eq!(second.await.unwrap(), [2]);
    });
}
