//! Modules that break a promise while several threads compute with them: all of the threads are refused.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use tcx::{Cache, ErrorKind, Extractor, Result, cached_module};
use tcx_tests::threads::{ends_within, in_threads};

fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    ends_within(Duration::from_mins(1), work)
}

/// Depends on the batch.
#[cached_module(id = "sums_at_once_v1", key = i64)]
struct Sums {
    #[tcx(not_identity, assume_stateless)]
    both: &'static (Barrier, AtomicUsize),
}

impl Extractor for Sums {
    type Input = Vec<i64>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<f32>> {
        let (barrier, calls) = self.both;
        if calls.fetch_add(1, Ordering::SeqCst) < 2 {
            barrier.wait();
        }
        let sum: i64 = inputs.iter().sum();
        Ok(inputs.iter().map(|x| (x + sum) as f32).collect())
    }
}

#[test]
fn a_module_that_depends_on_its_batch_is_refused_in_all_threads() {
    let dir = tempfile::tempdir().unwrap();
    let both: &'static _ = Box::leak(Box::new((Barrier::new(2), AtomicUsize::new(0))));
    let sums = Cache::open(dir.path()).unwrap().module(Sums { both }).unwrap().concurrency(2).unwrap();
    ends(move || {
        in_threads(2, |at| {
            let ids = [1 + 2 * at as i64, 2 + 2 * at as i64];
            let error = sums.forward(&ids, &ids.to_vec()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ModuleViolation, "{error}");
        });
        assert!(sums.forward(&[9], &vec![9]).is_err());
        assert_eq!(sums.coverage(&[1, 2, 3, 4, 9]).unwrap().missing(), [0, 1, 2, 3, 4]);
    });
}

/// Depends on the batch if sample 1 is in it. The batch with sample 3 begins before and ends after that one.
#[cached_module(id = "sums_of_some_at_once_v1", key = i64)]
struct SumsOfSome {
    #[tcx(not_identity, assume_stateless)]
    both: &'static Barrier,
    #[tcx(not_identity, assume_stateless)]
    go_on: &'static Mutex<Receiver<()>>,
}

impl Extractor for SumsOfSome {
    type Input = Vec<i64>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<f32>> {
        match inputs[..] {
            [1, 2] => drop(self.both.wait()),
            [3, 4] => {
                self.both.wait();
                self.go_on.lock().unwrap().recv().unwrap();
            }
            _ => {}
        }
        let sum: i64 = if inputs.contains(&1) { inputs.iter().sum() } else { 0 };
        Ok(inputs.iter().map(|x| (x + sum) as f32).collect())
    }
}

#[test]
fn a_batch_that_is_being_computed_when_another_one_fails_its_check_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (go, go_on) = channel();
    let (both, go_on): (&'static _, &'static _) =
        (Box::leak(Box::new(Barrier::new(2))), Box::leak(Box::new(Mutex::new(go_on))));
    let sums = Cache::open(dir.path()).unwrap().module(SumsOfSome { both, go_on }).unwrap();
    let sums = sums.concurrency(2).unwrap();
    ends(move || {
        thread::scope(|scope| {
            let later = scope.spawn(|| sums.forward(&[3, 4], &vec![3, 4]).unwrap_err());
            let error = sums.forward(&[1, 2], &vec![1, 2]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ModuleViolation, "{error}");
            go.send(()).unwrap();
            assert_eq!(later.join().unwrap().to_string(), error.to_string());
        });
        assert_eq!(sums.coverage(&[1, 2, 3, 4]).unwrap().missing(), [0, 1, 2, 3]);
    });
}
