//! A handle at run time: NaN values, networks that are built and dropped, threads, panics.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};
use tcx::{Cache, Cached, CachedModule, Extractor, Identity, Result, cached_module, f16};

/// Divides by the input.
#[cached_module(
    id = "divides_v1",
    key = i64,
    output(inverse: tensor(f32, [2]), half: (Vec<f16>, Vec<String>), label: Vec<i64>)
)]
struct Divides;

impl Extractor for Divides {
    type Input = Tensor;
    type Output = DividesOutput;

    fn forward(&self, x: &Tensor) -> Result<DividesOutput> {
        let inverse = x.reciprocal();
        let half = Vec::try_from(x.to_kind(Kind::Half))?;
        let label: Vec<i64> = vec![i64::MAX; half.len()];
        let text = vec!["NaN".to_owned(); half.len()];
        Ok(DividesOutput { inverse: inverse.unsqueeze(1).expand([-1, 2], false), half: (half, text), label })
    }
}

#[test]
fn numbers_that_are_none_are_counted_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Divides).unwrap();
    let (ids, x) = ([1, 2, 3, 4], Tensor::from_slice(&[1_f32, 0., f32::NAN, 1e5]));
    for _ in 0..2 {
        let found = cached.forward(&ids, &x).unwrap();
        let inverse: Vec<f32> = Vec::try_from(found.inverse.select(1, 0)).unwrap();
        assert!(inverse[1].is_infinite() && inverse[2].is_nan() && found.half.0[3].is_infinite());
        // The checks of the first batch have run, too.
        assert_eq!(cached.stats().non_finite_rows, 3);
    }
}

#[test]
fn numbers_that_are_none_are_refused_if_asked_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let cached = cache.module(Divides).unwrap().reject_non_finite();
    let error = cached.forward(&[1, 7], &Tensor::from_slice(&[1_f32, 0.])).map(|_| ()).unwrap_err();
    let said =
        "module `divides_v1`: field `inverse` of the output for id 7 is inf at element 0; fix the input";
    assert!(error.to_string().starts_with(said), "{error}");
    let parts = (error.module_id(), error.field(), error.expected(), error.found());
    assert_eq!(parts, (Some("divides_v1"), Some("inverse"), Some("finite numbers"), Some("inf")));
    let error = cached.forward(&[8], &Tensor::from_slice(&[1e5_f32])).map(|_| ()).unwrap_err();
    assert_eq!(error.field(), Some("half.0"), "what a field cannot hold is none either");
    assert_eq!((cached.stats().rows_accepted, cached.stats().non_finite_rows), (0, 2));
    cached.forward(&[1], &Tensor::from_slice(&[1_f32])).unwrap();
    // Rows that another handle has stored are served.
    cache.module(Divides).unwrap().forward(&[7], &Tensor::from_slice(&[0_f32])).unwrap();
    cached.fetch(&[7], |_| panic!("it is there")).unwrap();
}

static BUILT: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Counts how often it is dropped.
#[cached_module(id = "heavy_v1", key = i64)]
struct Heavy;

impl Drop for Heavy {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

impl Extractor for Heavy {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

#[test]
fn a_released_network_is_dropped_and_built_again_when_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let mut identity = Identity::default();
    identity.type_name("Heavy");
    let build = || {
        BUILT.fetch_add(1, Ordering::SeqCst);
        Ok(Heavy)
    };
    let cached = cache.lazy_module(identity, Device::Cpu, build).unwrap();
    let counts = || (BUILT.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst));
    assert!(!cached.release(), "nothing is built yet");
    cached.forward(&[1, 2], &vec![10, 20]).unwrap();
    assert_eq!(counts(), (1, 0));
    assert!(cached.release() && !cached.release());
    assert_eq!(counts(), (1, 1));
    assert_eq!(cached.forward(&[1], &vec![10]).unwrap(), [10]);
    assert_eq!(counts(), (1, 1), "nothing was missing");
    assert_eq!(cached.forward(&[1, 3], &vec![10, 30]).unwrap(), [10, 30]);
    assert_eq!(counts(), (2, 1));
    let given = cache.module(Heavy).unwrap();
    assert!(!given.release(), "it could not be built again");
    given.forward(&[4], &vec![40]).unwrap();
}

fn crosses_threads<T: Send + Sync>() {}

#[test]
fn a_handle_is_shared_by_threads() {
    crosses_threads::<Cached<Divides>>();
    crosses_threads::<Cache>();
    crosses_threads::<tcx::Error>();
}

static FIRST: AtomicBool = AtomicBool::new(true);

/// Panics the first time; records its later inputs.
#[cached_module(id = "panics_once_v1", key = i64)]
struct PanicsOnce {
    #[tcx(assume_stateless)]
    seen: &'static Mutex<Vec<i64>>,
}

impl Extractor for PanicsOnce {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        assert!(!FIRST.swap(false, Ordering::SeqCst), "as asked");
        self.seen.lock().unwrap().extend(inputs);
        Ok(inputs.clone())
    }
}

#[test]
fn a_panic_in_one_thread_leaves_the_samples_to_the_others_which_compute_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let seen: &'static Mutex<Vec<i64>> = Box::leak(Box::default());
    let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
    let cached = cache.module(PanicsOnce { seen }).unwrap();
    let (barrier, ids) = (Barrier::new(6), (0..50).collect::<Vec<i64>>());
    let panics: Vec<bool> = std::thread::scope(|scope| {
        let ask = || {
            barrier.wait();
            let asked = catch_unwind(AssertUnwindSafe(|| cached.forward(&ids, &ids).unwrap()));
            assert!(asked.as_ref().map_or(true, |found| *found == ids));
            // A panic of `forward` must not leave gradients enabled on this thread.
            assert!(asked.is_ok() || !Tensor::ones([1], tch::kind::FLOAT_CPU).requires_grad());
            asked.is_err()
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(panics.iter().filter(|&&panicked| panicked).count(), 1);
    let mut seen = seen.lock().unwrap().clone();
    // The check of the first batch also computes the last sample and another one alone.
    assert_eq!((seen.len(), seen.iter().filter(|&&id| id == 49).count()), (52, 2));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), cached.stats().rows_accepted), (50, 50));
}

static INSIDE: Mutex<Option<mpsc::Sender<()>>> = Mutex::new(None);
static GO_ON: Mutex<Option<mpsc::Receiver<()>>> = Mutex::new(None);

/// Waits inside `forward` on request.
#[cached_module(id = "waits_v1", key = i64)]
struct Waits;

impl Extractor for Waits {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        if let Some(inside) = INSIDE.lock().unwrap().take() {
            inside.send(()).unwrap();
            GO_ON.lock().unwrap().take().unwrap().recv().unwrap();
        }
        Ok(inputs.clone())
    }
}

#[test]
fn hits_are_served_while_another_thread_is_inside_forward() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let cached = cache.module(Waits).unwrap();
    cached.forward(&[1, 2], &vec![10, 20]).unwrap();
    cached.flush().unwrap();
    cached.forward(&[3], &vec![30]).unwrap();
    let ((inside, is_inside), (go, go_on)) = (mpsc::channel(), mpsc::channel());
    (*INSIDE.lock().unwrap(), *GO_ON.lock().unwrap()) = (Some(inside), Some(go_on));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| cached.forward(&[4], &vec![40]).unwrap());
        is_inside.recv().unwrap();
        // Sealed rows and rows that wait to be written.
        assert_eq!(cached.fetch(&[3, 1, 2], |_| panic!("all are there")).unwrap(), [30, 10, 20]);
        assert!(cached.coverage(&[1, 2, 3]).unwrap().is_complete());
        assert_eq!(cached.prefetch(&[1, 2, 4]).unwrap(), 2);
        cached.flush().unwrap();
        assert!(!slow.is_finished());
        go.send(()).unwrap();
        assert_eq!(slow.join().unwrap(), [40]);
    });
}

#[test]
fn threads_that_miss_the_same_ids_of_a_table_compute_them_once_and_a_panic_poisons_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let table = Cache::open(dir.path()).unwrap().table::<Vec<i64>>("shared_numbers_v1").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| table.get_or_compute(&["a"], |_| panic!("as asked"))));
    assert!(panicked.is_err());
    let (before, computed) = (table.stats().misses, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let found = table.get_or_compute(&["a", "bb"], |missing| {
                    // Every thread has missed both rows before one of them is stored.
                    let deadline = Instant::now() + Duration::from_mins(2);
                    while table.stats().misses < before + 12 && Instant::now() < deadline {
                        std::thread::yield_now();
                    }
                    computed.fetch_add(missing.len(), Ordering::SeqCst);
                    Ok(missing.ids().map(|id| id.len() as i64).collect())
                });
                assert_eq!(found.unwrap(), [1, 2]);
            });
        }
    });
    assert_eq!(computed.load(Ordering::SeqCst), 2);
}

#[test]
fn every_error_names_the_module_and_what_to_do() {
    fn said<M: CachedModule>(error: &tcx::Error) {
        assert_eq!(error.module_id(), Some(M::ID), "{error}");
        let remedy = error.remedy().unwrap();
        assert!(error.to_string().ends_with(remedy), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Divides).unwrap();
    said::<Divides>(&cached.forward(&[1], &Tensor::from_slice(&[1_f32, 2.])).map(|_| ()).unwrap_err());
    said::<Divides>(&cached.fetch(&[1], |_| Ok(Tensor::from_slice(&[1_f32, 2.]))).map(|_| ()).unwrap_err());
    said::<Divides>(&cached.forward(&[1], &Tensor::from_slice(&[1_f64])).map(|_| ()).unwrap_err());
    said::<Divides>(&cached.verify(2., 0, |_| panic!("no such part")).map(|_| ()).unwrap_err());
    // An error of libtorch has no remedy from tcx, but it names the module.
    let error = cached.forward(&[1], &Tensor::ones([1, 3], tch::kind::FLOAT_CPU)).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), tcx::ErrorKind::Libtorch, "{error}");
    assert!(error.to_string().starts_with("module `divides_v1`: ") && error.module_id().is_some(), "{error}");
}

#[test]
fn an_error_is_small_enough_to_travel_through_every_return_value() {
    assert_eq!((size_of::<tcx::Error>(), size_of::<Result<()>>()), (8, 8));
}
