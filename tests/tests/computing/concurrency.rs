//! Several batches that are computed at once: each sample once, whatever fails.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use tch::{Device, Tensor, nn};
use tcx::{
    Cache, Cached, D1, Error, ErrorKind, Extractor, Frozen, Identity, Mode, Result, Typed, cached_module,
};
use tcx_tests::threads::{Random, ends_within, in_threads};

/// What the calls of a `forward` do and have done.
#[derive(Default)]
struct Calls {
    /// How often each sample was computed, since this was emptied.
    computed: Mutex<HashMap<i64, usize>>,
    begun: AtomicUsize,
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    /// The first calls wait until there are enough of them.
    meets: Option<(usize, Barrier)>,
    /// Every fifth call panics, and every fourth fails.
    fails: AtomicBool,
}

impl Calls {
    fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The first `threads` calls run at the same time.
    fn meeting(threads: usize) -> &'static Self {
        let meets = Some((threads, Barrier::new(threads)));
        Box::leak(Box::new(Self { meets, ..Self::default() }))
    }

    fn run(&self, inputs: &[i64]) -> Result<Vec<i64>> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        let call = self.begun.fetch_add(1, Ordering::SeqCst);
        if let Some((threads, barrier)) = &self.meets
            && call < *threads
        {
            barrier.wait();
        }
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            assert!(!call.is_multiple_of(5), "as asked");
            if call.is_multiple_of(4) {
                return Err(Error::loader("as asked"));
            }
        }
        let mut computed = self.computed.lock().unwrap();
        for x in inputs {
            *computed.entry(*x).or_default() += 1;
        }
        Ok(inputs.iter().map(|x| 2 * x).collect())
    }

    fn take(&self) -> HashMap<i64, usize> {
        std::mem::take(&mut *self.computed.lock().unwrap())
    }
}

/// Twice the input.
#[cached_module(id = "doubles_at_once_v1", key = i64)]
struct Doubles {
    #[tcx(not_identity, assume_stateless)]
    calls: &'static Calls,
}

impl Extractor for Doubles {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        self.calls.run(inputs)
    }
}

fn doubled(ids: &[i64]) -> Vec<i64> {
    ids.iter().map(|id| 2 * id).collect()
}

fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    ends_within(Duration::from_mins(1), work)
}

#[test]
fn as_many_batches_are_computed_at_once_as_the_setting_says_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::meeting(3);
    let doubles = Cache::open(dir.path()).unwrap().module(Doubles { calls }).unwrap().concurrency(3).unwrap();
    ends(move || {
        in_threads(6, |at| {
            let ids: Vec<i64> = (0..4).map(|id| 10 * at as i64 + id).collect();
            assert_eq!(doubles.forward(&ids, &ids).unwrap(), doubled(&ids));
        });
    });
    assert_eq!(calls.most_inside.load(Ordering::SeqCst), 3);
}

/// Requests of all kinds for overlapping ids, in eight threads.
fn overlapping_requests(doubles: &Cached<Doubles>) {
    in_threads(8, |seed| {
        let mut random = Random(seed as u64);
        for _ in 0..40 {
            let (ids, fetches) = (random.ids(24, 200), random.below(2) == 0);
            let request = || {
                if fetches {
                    doubles.fetch(&ids, |missing| Ok(missing.ids().copied().collect()))
                } else {
                    doubles.forward(&ids, &ids)
                }
            };
            match catch_unwind(AssertUnwindSafe(request)) {
                Ok(Ok(found)) => assert_eq!(found, doubled(&ids)),
                Ok(Err(error)) => assert!(format!("{error:#}").contains("as asked"), "{error:#}"),
                Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"as asked")),
            }
        }
    });
}

#[test]
fn each_sample_is_computed_once_whatever_fails_and_panics() {
    for fails in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
        let calls = Calls::new();
        let doubles = cache.module(Doubles { calls }).unwrap().concurrency(4).unwrap();
        // The first batch is checked, for which some of it is computed again.
        doubles.forward(&[-1, -2], &vec![-1, -2]).unwrap();
        calls.take();
        calls.fails.store(fails, Ordering::SeqCst);
        ends(move || {
            overlapping_requests(&doubles);
            calls.fails.store(false, Ordering::SeqCst);
            let all: Vec<i64> = (0..200).collect();
            assert_eq!(doubles.forward(&all, &all).unwrap(), doubled(&all));
        });
        let computed = calls.take();
        assert!(computed.len() == 200 && computed.values().all(|count| *count == 1), "{computed:?}");
    }
}

#[test]
fn calls_of_warm_share_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.).progress(false).open(dir.path()).unwrap();
    let calls = Calls::new();
    let doubles = cache.module(Doubles { calls }).unwrap().batch_size(8).concurrency(2).unwrap();
    doubles.forward(&[-1, -2], &vec![-1, -2]).unwrap();
    calls.take();
    let ids: Vec<i64> = (0..300).collect();
    ends(move || {
        in_threads(2, |_| {
            doubles.warm(&ids, |missing| Ok(missing.ids().copied().collect())).unwrap();
        });
        assert_eq!(doubles.fetch(&ids, |_| panic!("all are there")).unwrap(), doubled(&ids));
    });
    let computed = calls.take();
    assert!(computed.len() == 300 && computed.values().all(|count| *count == 1), "{computed:?}");
}

#[test]
fn a_row_that_another_thread_computes_after_its_input_was_loaded_is_counted_by_that_thread() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
    let doubles = cache.module(Doubles { calls: Calls::new() }).unwrap().concurrency(2).unwrap();
    let report = doubles.warm(&[1, 2, 3], |missing| {
        thread::scope(|scope| {
            let other = scope.spawn(|| doubles.forward(&[2], &vec![2]).unwrap());
            assert_eq!(other.join().unwrap(), [4]);
        });
        Ok(missing.ids().copied().collect())
    });
    assert_eq!(report.unwrap().computed, 2);
    assert_eq!(doubles.stats().rows_computed, 3);
}

#[test]
fn a_lazy_module_is_built_once_and_again_after_an_error_or_a_release() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let calls = Calls::meeting(2);
    let builds = Arc::new(AtomicUsize::new(0));
    let counted = builds.clone();
    let build = move || match counted.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Error::loader("as asked")),
        _ => Ok(Doubles { calls }),
    };
    let doubles = cache.lazy_module(Identity::of(&Doubles { calls }), Device::Cpu, build).unwrap();
    let doubles = doubles.concurrency(2).unwrap();
    assert_eq!(doubles.forward(&[1], &vec![1]).unwrap_err().kind(), ErrorKind::Loader);
    ends(move || {
        in_threads(2, |at| {
            let ids = [at as i64, 10 + at as i64];
            assert_eq!(doubles.forward(&ids, &ids.to_vec()).unwrap(), doubled(&ids));
        });
        assert_eq!(builds.load(Ordering::SeqCst), 2);
        assert!(doubles.release() && !doubles.release());
        assert_eq!(doubles.forward(&[2], &vec![2]).unwrap(), [4]);
        assert_eq!(builds.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn views_of_a_sample_are_computed_at_once_and_a_recomputing_handle_computes_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
    let calls = Calls::meeting(2);
    let doubles = cache.module(Doubles { calls }).unwrap().concurrency(2).unwrap();
    ends(move || {
        in_threads(2, |at| {
            assert_eq!(doubles.view(at as u32).forward(&[1], &vec![1]).unwrap(), [2]);
        });
        doubles.flush().unwrap();
    });

    let calls = Calls::new();
    let cache = cache.with_mode(Mode::Recompute);
    let doubles = cache.module(Doubles { calls }).unwrap().concurrency(3).unwrap();
    doubles.forward(&[-1, -2], &vec![-1, -2]).unwrap();
    calls.take();
    ends(move || {
        in_threads(6, |_| {
            let ids: Vec<i64> = (0..30).collect();
            for ids in ids.chunks(7) {
                assert_eq!(doubles.forward(ids, &ids.to_vec()).unwrap(), doubled(ids));
            }
        });
        doubles.flush().unwrap();
    });
    let computed = calls.take();
    assert!(computed.len() == 30 && computed.values().all(|count| *count == 1), "{computed:?}");
}

#[test]
fn handles_that_store_nothing_compute_the_same_sample_at_once() {
    for mode in [Mode::Off, Mode::ReadOnly] {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::builder().progress(false).open(dir.path()).unwrap().with_mode(mode);
        let doubles = cache.module(Doubles { calls: Calls::meeting(2) }).unwrap().concurrency(2).unwrap();
        ends(move || in_threads(2, |_| assert_eq!(doubles.forward(&[1], &vec![1]).unwrap(), [2])));
    }
}

static OWN: OnceLock<Cached<AsksItself>> = OnceLock::new();

/// Asks its own handle for the previous sample.
#[cached_module(id = "asks_itself_at_once_v1", key = i64)]
struct AsksItself;

impl Extractor for AsksItself {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        let own = OWN.get().unwrap();
        match inputs[0] {
            0 => Ok(inputs.clone()),
            -1 => Ok(vec![i64::from(own.release())]),
            id => Ok(vec![own.forward(&[id - 1], &vec![id - 1])?[0] + 1]),
        }
    }
}

#[test]
fn a_forward_that_asks_its_own_handle_is_an_error_with_turns_to_spare() {
    let dir = tempfile::tempdir().unwrap();
    let own = Cache::open(dir.path()).unwrap().module(AsksItself).unwrap().concurrency(4).unwrap();
    assert!(OWN.set(own).is_ok());
    let own = || OWN.get().unwrap();
    let error = ends(move || own().forward(&[5], &vec![5])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModuleViolation);
    assert!(error.to_string().contains("its own handle"), "{error}");
    assert_eq!(ends(move || own().forward(&[0], &vec![0]).unwrap()), [0]);
    assert_eq!(ends(move || own().forward(&[1], &vec![1]).unwrap()), [1]);
    assert_eq!(ends(move || own().forward(&[-1], &vec![-1]).unwrap()), [0], "a module in use stays");
}

#[test]
fn samples_are_computed_a_second_time_as_often_as_the_setting_says() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(1.).open(dir.path()).unwrap();
    let doubles = cache.module(Doubles { calls: Calls::new() }).unwrap().concurrency(4).unwrap();
    ends(move || {
        in_threads(4, |at| {
            let ids: Vec<i64> = (0..100).map(|id| 100 * at as i64 + id).collect();
            for ids in ids.chunks(10) {
                assert_eq!(doubles.forward(ids, &ids.to_vec()).unwrap(), doubled(ids));
            }
        });
        assert_eq!((doubles.stats().rows_computed, doubles.stats().rows_rechecked), (400, 400));
    });
}

#[test]
fn found_rows_are_served_while_all_turns_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::meeting(3);
    let cache = Cache::open(dir.path()).unwrap();
    let before = cache.module(Doubles { calls: Calls::new() }).unwrap();
    before.forward(&[1, 2], &vec![1, 2]).unwrap();
    let doubles = cache.module(Doubles { calls }).unwrap().concurrency(2).unwrap();
    ends(move || {
        thread::scope(|scope| {
            let doubles = &doubles;
            let slow = [3, 4].map(|id| scope.spawn(move || doubles.forward(&[id], &vec![id]).unwrap()));
            while calls.inside.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            assert_eq!(doubles.forward(&[1, 2], &vec![1, 2]).unwrap(), [2, 4]);
            assert!(slow.iter().all(|slow| !slow.is_finished()));
            // The third call lets them go.
            calls.run(&[0]).unwrap();
            assert_eq!(slow.map(|slow| slow.join().unwrap()), [[6], [8]]);
        });
    });
}

#[test]
fn a_number_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    for batches in [0, 1025, usize::MAX] {
        let error = cache.module(Doubles { calls: Calls::new() }).unwrap().concurrency(batches).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSettings);
        assert_eq!(error.expected(), Some("a number from 1 to 1024"));
        assert_eq!(error.found(), Some(batches.to_string().as_str()));
        assert_eq!(error.module_id(), Some("doubles_at_once_v1"));
    }
    for batches in [1, 1024] {
        let doubles = cache.module(Doubles { calls: Calls::new() }).unwrap().concurrency(batches).unwrap();
        assert_eq!(doubles.forward(&[1], &vec![1]).unwrap(), [2]);
    }
}

#[cached_module(id = "linear_of_one_thread_v1", key = i64)]
struct Linear {
    _fc: Frozen<nn::Linear>,
}

impl Extractor for Linear {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

#[test]
fn handles_of_modules_that_are_not_sync_cross_threads() {
    fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<Cached<Linear>>();
    crosses_threads::<Cached<Doubles>>();
}
