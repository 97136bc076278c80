//! A cached module computes each sample once, returns rows in the requested order, and never a wrong row, whatever the module
//! does.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tch::nn::{self, Module};
use tch::{Device, Kind, Tensor, kind};
use tcx::{Cache, CacheableOutput, Cached, D1, Extractor, Frozen, Identity, Typed, Weights, cached_module};

/// Twice the input; notes which inputs it was given.
#[cached_module(id = "doubles_v1", key = i64)]
struct Doubles {
    #[tcx(assume_stateless)]
    seen: &'static Mutex<Vec<Vec<i64>>>,
}

impl Extractor for Doubles {
    type Input = Tensor;
    type Output = Typed<i64, D1<1>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        self.seen.lock().unwrap().push(Vec::try_from(inputs)?);
        Ok((inputs * 2).unsqueeze(1).into())
    }
}

struct Fixture {
    seen: &'static Mutex<Vec<Vec<i64>>>,
    cached: Cached<Doubles>,
    cache: Cache,
    _dir: tempfile::TempDir,
}

fn doubles() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    // The test counts computed samples, so no random sample may be computed again.
    let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
    let seen: &'static Mutex<Vec<Vec<i64>>> = Box::leak(Box::default());
    let cached = cache.module(Doubles { seen }).unwrap();
    // The check of the first batch also computes two samples alone.
    cached.forward(&[-1, -2], &Tensor::from_slice(&[-1_i64, -2])).unwrap();
    seen.lock().unwrap().clear();
    Fixture { seen, cached, cache, _dir: dir }
}

fn forward(fixture: &Fixture, ids: &[i64]) -> Vec<i64> {
    let output = fixture.cached.forward(ids, &Tensor::from_slice(ids)).unwrap();
    Vec::try_from(output.flatten(0, -1)).unwrap()
}

#[test]
fn only_missing_samples_are_computed_once_each_and_the_order_is_kept() {
    let fixture = doubles();
    assert_eq!(forward(&fixture, &[3, 1, 2]), [6, 2, 4]);
    assert_eq!(forward(&fixture, &[5, 2, 4, 5, 1, 4]), [10, 4, 8, 10, 2, 8]);
    assert_eq!(forward(&fixture, &[4, 3]), [8, 6]);
    assert_eq!(*fixture.seen.lock().unwrap(), [vec![3, 1, 2], vec![5, 4]]);
    assert_eq!(forward(&fixture, &[]), [0; 0]);
}

#[test]
fn fetch_loads_inputs_for_what_is_missing_only() {
    let fixture = doubles();
    forward(&fixture, &[1, 2]);
    let ids = [7, 1, 8, 7, 2];
    let output = fixture.cached.fetch(&ids, |missing| {
        assert_eq!((missing.positions(), missing.len()), (&[0, 2][..], 2));
        let ids: Vec<i64> = missing.ids().copied().collect();
        Ok(Tensor::from_slice(&ids))
    });
    let output: Vec<i64> = Vec::try_from(output.unwrap().flatten(0, -1)).unwrap();
    assert_eq!(output, [14, 2, 16, 14, 4]);
    fixture.cached.fetch(&ids, |_| panic!("nothing is missing")).unwrap();
}

#[test]
fn a_failing_loader_is_an_error_with_its_own_words_and_nothing_is_stored() {
    let fixture = doubles();
    let broken = std::io::Error::other("the disk is on fire");
    let error = fixture.cached.fetch(&[9], |_| Err(tcx::Error::loader(broken))).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "module `doubles_v1`: loading the input of `9` failed: the disk is on fire"
    );
    let error = fixture.cached.fetch(&[9, 10], |_| Ok(Tensor::from_slice(&[9_i64]))).unwrap_err();
    let said = "module `doubles_v1`: the loader returned the wrong number of samples: expected 2, found 1; return the inputs";
    assert!(error.to_string().starts_with(said), "{error}");
    assert_eq!(forward(&fixture, &[9]), [18]);
}

#[test]
fn ids_and_inputs_of_different_number_are_refused() {
    let fixture = doubles();
    let error = fixture.cached.forward(&[1, 2], &Tensor::from_slice(&[1_i64])).unwrap_err();
    assert!(error.to_string().contains("expected one id per sample, 1 in all, found 2"), "{error}");
}

#[test]
fn what_is_returned_is_the_callers_own() {
    let fixture = doubles();
    for _ in 0..2 {
        let output = fixture.cached.forward(&[1], &Tensor::from_slice(&[1_i64])).unwrap();
        let _ = output.shallow_clone().fill_(99);
    }
    assert_eq!(forward(&fixture, &[1]), [2]);
}

#[test]
fn a_closed_cache_says_so() {
    let fixture = doubles();
    let (cache, cached) = (fixture.cache, fixture.cached);
    cache.clone().close().unwrap();
    let said = "was closed; open it again to use it";
    assert!(cached.forward(&[1], &Tensor::from_slice(&[1_i64])).unwrap_err().to_string().contains(said));
    assert!(cached.flush().unwrap_err().to_string().contains(said));
    assert!(cache.flush().unwrap_err().to_string().contains(said));
    assert!(cache.module(Doubles { seen: fixture.seen }).unwrap_err().to_string().contains(said));
}

#[test]
fn threads_that_miss_the_same_ids_compute_them_once() {
    let fixture = doubles();
    let ids: Vec<i64> = (0..100).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (fixture, ids) = (&fixture, &ids);
            scope.spawn(move || {
                for chunk in ids.chunks(10) {
                    let expected: Vec<i64> = chunk.iter().map(|id| id * 2).collect();
                    let output = match thread % 2 {
                        0 => fixture.cached.forward(chunk, &Tensor::from_slice(chunk)).unwrap(),
                        _ => fixture
                            .cached
                            .fetch(chunk, |missing| {
                                Ok(Tensor::from_slice(&missing.ids().copied().collect::<Vec<_>>()))
                            })
                            .unwrap(),
                    };
                    assert_eq!(Vec::<i64>::try_from(output.flatten(0, -1)).unwrap(), expected);
                }
            });
        }
    });
    let mut seen = fixture.seen.lock().unwrap().concat();
    seen.sort_unstable();
    assert_eq!(seen, ids, "each once");
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

#[cached_module(id = "panics_v1", key = i64)]
struct Panics {}

impl Extractor for Panics {
    type Input = Tensor;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Vec<i64>> {
        assert!(PANICS.load(Ordering::SeqCst) == 0, "as asked");
        Ok(Vec::try_from(inputs)?)
    }
}

#[test]
fn a_panicking_module_poisons_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Panics {}).unwrap();
    let input = Tensor::from_slice(&[1_i64]);
    PANICS.store(1, Ordering::SeqCst);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cached.forward(&[1], &input)));
    assert!(panic.is_err());
    PANICS.store(0, Ordering::SeqCst);
    assert_eq!(cached.forward(&[1], &input).unwrap(), [1]);
}

#[derive(CacheableOutput)]
struct Declared {
    #[tensor(f32, [4])]
    pooled: Tensor,
}

/// Returns the given values.
#[cached_module(id = "odd_v1")]
struct Odd {
    #[tcx(not_identity)]
    what: &'static str,
}

impl Extractor for Odd {
    type Input = Tensor;
    type Output = Declared;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Declared> {
        let rows = inputs.size()[0];
        let pooled = match self.what {
            "dtype" => Tensor::zeros([rows, 4], kind::DOUBLE_CPU),
            "shape" => Tensor::zeros([rows, 5], kind::FLOAT_CPU),
            "rows" => Tensor::zeros([rows + 1, 4], kind::FLOAT_CPU),
            "gradients" => Tensor::zeros([rows, 4], kind::FLOAT_CPU).set_requires_grad(true) * 2,
            "random" => Tensor::rand([rows, 4], kind::FLOAT_CPU),
            "crowd" => inputs.unsqueeze(1).expand([rows, 4], false) - inputs.mean(Kind::Float),
            _ => inputs.unsqueeze(1).expand([rows, 4], false),
        };
        Ok(Declared { pooled })
    }
}

#[test]
fn an_output_that_is_not_what_was_promised_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let (ids, inputs) = (["a", "b"], Tensor::from_slice(&[1_f32, 3.]));
    for (what, said) in [
        ("dtype", "module `odd_v1`: output field `pooled`: expected f32 [2, 4], found f64 [2, 4]"),
        ("shape", "output field `pooled`: expected f32 [2, 4], found f32 [2, 5]"),
        ("rows", "output field `pooled`: expected f32 [2, 4], found f32 [3, 4]"),
        ("gradients", "a trainable tensor takes part; hold it in `Frozen`"),
        ("random", "module `odd_v1`: the same sample gave two different outputs: field `pooled` is "),
        ("crowd", "module `odd_v1`: a sample's output depends on the rest of its batch: field `pooled` is "),
    ] {
        let cached = cache.module(Odd { what }).unwrap();
        for _ in 0..2 {
            let error = cached.forward(&ids, &inputs).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(said), "{what}: {error}");
        }
    }
    let cached = cache.module(Odd { what: "right" }).unwrap();
    let output = cached.forward(&ids, &inputs).unwrap().pooled;
    assert_eq!(Vec::<f32>::try_from(output.select(1, 0)).unwrap(), [1., 3.]);
    assert_eq!(cached.stats().rows_accepted, 2, "only the right ones");
}

#[test]
fn a_module_that_was_first_asked_for_one_sample_is_still_checked_against_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Odd { what: "crowd" }).unwrap();
    cached.forward(&["a"], &Tensor::from_slice(&[1_f32])).unwrap();
    let error = cached.forward(&["b", "c"], &Tensor::from_slice(&[1_f32, 3.])).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("a sample's output depends on the rest of its batch"), "{error}");
}

#[cached_module(id = "linear_v1")]
struct Linear {
    fc: Frozen<nn::Linear>,
    size: i64,
}

impl Extractor for Linear {
    type Input = Tensor;
    type Output = Typed<f32, D1<3>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.fc.forward(inputs).into())
    }
}

fn linear(weight: f64, size: i64) -> (Linear, Tensor) {
    let mut leaked = Tensor::new();
    let fc = Frozen::build(nn::VarStore::new(Device::Cpu), |path| {
        // Constant initial values: the tests of this file run in parallel and share one random generator.
        let (ws_init, bs_init) = (nn::Init::Const(weight), Some(nn::Init::Const(0.5)));
        let init = nn::LinearConfig { ws_init, bs_init, bias: true };
        let fc = nn::linear(path, 2, 3, init);
        leaked = fc.ws.shallow_clone();
        fc
    });
    (Linear { fc: fc.unwrap(), size }, leaked)
}

#[test]
fn other_weights_or_another_size_meet_no_old_cache() {
    let dir = tempfile::tempdir().unwrap();
    let open = |weight, size| Cache::open(dir.path()).unwrap().module(linear(weight, size).0);
    let cached = open(1., 224).unwrap();
    let x = Tensor::ones([1, 2], kind::FLOAT_CPU);
    let output = cached.forward(&["a"], &x).unwrap();
    cached.flush().unwrap();
    drop(cached);
    let error = open(2., 224).unwrap_err().to_string();
    assert!(error.contains("`fc.weights`: blake3:"), "{error}");
    assert!(error.contains("bump the id, as in `linear_v2`"), "{error}");
    let error = open(1., 448).unwrap_err().to_string();
    assert!(error.contains("`size`: 224i64 in the cache, 448i64 in the code"), "{error}");
    let cached = open(1., 224).unwrap();
    assert!(cached.forward(&["a"], &x).unwrap().equal(&output), "the cache is still good");
    assert_eq!(cached.stats().misses, 0);
}

#[test]
fn weights_that_change_after_they_were_frozen_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (module, mut leaked) = linear(1., 224);
    let cached = Cache::open(dir.path()).unwrap().module(module).unwrap();
    let x = Tensor::ones([1, 2], kind::FLOAT_CPU);
    cached.forward(&["a"], &x).unwrap();
    let _ = tch::no_grad(|| leaked.fill_(7.));
    let error = cached.forward(&["b"], &x).unwrap_err().to_string();
    assert!(error.contains("weight `fc.weight`") && error.contains("changed in place"), "{error}");
    cached.forward(&["a"], &x).unwrap();
}

#[test]
fn other_weights_of_the_same_file_meet_no_old_cache() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("heads.safetensors");
    let heads = |path: &nn::Path<'_>| {
        ["head_a", "head_b"].map(|head| nn::linear(path / head, 2, 3, nn::LinearConfig::default()))
    };
    Frozen::build(nn::VarStore::new(Device::Cpu), heads).unwrap().save(&file).unwrap();
    let open = |head: &str| {
        let fc = Frozen::load(Device::Cpu, &file, |path| {
            nn::linear(path / head, 2, 3, nn::LinearConfig::default())
        });
        Cache::open(dir.path()).unwrap().module(Linear { fc: fc.unwrap(), size: 224 })
    };
    let cached = open("head_a").unwrap();
    cached.forward(&["a"], &Tensor::ones([1, 2], kind::FLOAT_CPU)).unwrap();
    cached.flush().unwrap();
    drop(cached);
    let error = open("head_b").unwrap_err().to_string();
    assert!(error.contains("`fc.weights`: blake3:"), "{error}");
}

#[test]
fn a_lazy_module_is_built_at_the_first_miss_and_never_when_nothing_is_missing() {
    static FIRST: AtomicUsize = AtomicUsize::new(0);
    static SECOND: AtomicUsize = AtomicUsize::new(0);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fc.safetensors");
    let build = |path: &nn::Path<'_>| nn::linear(path, 2, 3, nn::LinearConfig::default());
    Frozen::build(nn::VarStore::new(Device::Cpu), build).unwrap().save(&file).unwrap();
    let x = Tensor::ones([1, 2], kind::FLOAT_CPU);
    let cache = Cache::open(dir.path().join("cache")).unwrap();
    let open = |announced: i64, size: i64, builds: &'static AtomicUsize| {
        let mut identity = Identity::default();
        identity.type_name("Linear");
        identity.field("fc", &Weights::of_file(&file).unwrap());
        identity.field("size", &announced);
        let file = file.clone();
        cache.lazy_module(identity, Device::Cpu, move || {
            builds.fetch_add(1, Ordering::SeqCst);
            Ok(Linear { fc: Frozen::load(Device::Cpu, &file, build)?, size })
        })
    };
    let first = open(224, 224, &FIRST).unwrap();
    let output = first.forward(&["a", "b"], &Tensor::cat(&[&x, &x], 0)).unwrap();
    first.forward(&["c"], &x).unwrap();
    assert_eq!(FIRST.load(Ordering::SeqCst), 1);
    let second = open(224, 448, &SECOND).unwrap();
    assert!(second.forward(&["a"], &x).unwrap().equal(&output.narrow(0, 0, 1)));
    assert_eq!(SECOND.load(Ordering::SeqCst), 0, "nothing is missing");
    let error = second.forward(&["d"], &x).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("another identity than the one passed"), "{error}");
    assert!(error.contains("size = 224i64") && error.contains("size = 448i64"), "{error}");
    let error = open(448, 448, &SECOND).unwrap_err().to_string();
    assert!(error.contains("`size`: 224i64 in the cache, 448i64 in the code"), "{error}");
}
