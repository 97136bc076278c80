//! Modules that are generic, borrow, or contain trait objects: cached like any other, and distinguished by their fields.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::sync::Arc;

use tch::nn::{self, Module};
use tch::{Device, Tensor, kind};
use tcx::{Cache, Cached, D1, Extractor, Frozen, Stateless, Typed, cached_module};

/// A trait of a user's networks.
trait Net: Stateless {
    fn run(&self, x: &Tensor) -> Tensor;
}

#[derive(Stateless)]
struct Scales {
    by: f64,
}

#[derive(Stateless)]
struct Shifts {
    by: f64,
}

#[derive(Stateless)]
struct Projects {
    fc: Frozen<nn::Linear>,
}

impl Net for Scales {
    fn run(&self, x: &Tensor) -> Tensor {
        x * self.by
    }
}

impl Net for Shifts {
    fn run(&self, x: &Tensor) -> Tensor {
        x + self.by
    }
}

impl Net for Projects {
    fn run(&self, x: &Tensor) -> Tensor {
        self.fc.forward(x)
    }
}

fn projects(weight: f64) -> Projects {
    let init = nn::LinearConfig { ws_init: nn::Init::Const(weight), bs_init: None, bias: false };
    let fc = Frozen::build(nn::VarStore::new(Device::Cpu), |path| nn::linear(path, 2, 2, init));
    Projects { fc: fc.unwrap() }
}

fn input() -> Tensor {
    Tensor::from_slice(&[1_f32, 2.]).view([1, 2])
}

fn values(output: &Tensor) -> Vec<f32> {
    Vec::try_from(output.flatten(0, -1)).unwrap()
}

/// One network for several modules.
#[cached_module(id = "shared_v1")]
struct Shared {
    net: Arc<dyn Net + Send + Sync>,
}

impl Extractor for Shared {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.run(x).into())
    }
}

#[test]
fn an_object_is_cached_under_the_type_and_the_values_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = |net: Arc<dyn Net + Send + Sync>| Cache::open(dir.path()).unwrap().module(Shared { net });
    let cached = open(Arc::new(Scales { by: 2. })).unwrap();
    assert_eq!(values(&cached.forward(&["a"], &input()).unwrap()), [2., 4.]);
    cached.flush().unwrap();
    drop(cached);
    let error = open(Arc::new(Shifts { by: 2. })).unwrap_err().to_string();
    assert!(error.contains("`net`: Scales in the cache, Shifts in the code"), "{error}");
    let error = open(Arc::new(Scales { by: 3. })).unwrap_err().to_string();
    assert!(error.contains("`net.by`: 2f64 in the cache, 3f64 in the code"), "{error}");
    let cached = open(Arc::new(Scales { by: 2. })).unwrap();
    assert_eq!(values(&cached.forward(&["a"], &input()).unwrap()), [2., 4.]);
    assert_eq!(cached.stats().misses, 0);
}

/// Generic over its network and a number, and borrows the rest.
#[cached_module(id = "generic_v1", key = i64)]
struct Generic<'a, N: Net + ?Sized, const TIMES: usize> {
    factors: &'a [f64],
    net: Box<N>,
}

impl<N: Net + ?Sized, const TIMES: usize> Extractor for Generic<'_, N, TIMES> {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        let run = |x: Tensor| self.factors.iter().fold(self.net.run(&x), |y, &factor| y * factor);
        Ok((0..TIMES).fold(x.shallow_clone(), |x, _| run(x)).into())
    }
}

fn generic<'a, N: Net + Send, const TIMES: usize>(
    dir: &Path,
    factors: &'a [f64],
    net: N,
) -> tcx::Result<Cached<Generic<'a, N, TIMES>>> {
    Cache::open(dir)?.module(Generic { factors, net: Box::new(net) })
}

#[test]
fn a_generic_module_is_cached_under_what_it_is_generic_over() {
    let dir = tempfile::tempdir().unwrap();
    let factors = vec![0.5, 8.];
    let cached = generic::<_, 2>(dir.path(), &factors, Scales { by: 3. }).unwrap();
    for _ in 0..2 {
        assert_eq!(values(&cached.forward(&[7], &input()).unwrap()), [144., 288.]);
    }
    cached.flush().unwrap();
    drop(cached);
    for (error, said) in [
        (generic::<_, 3>(dir.path(), &factors, Scales { by: 3. }).map(drop), "`self<TIMES>`: 2usize"),
        (
            generic::<_, 2>(dir.path(), &factors, Shifts { by: 3. }).map(drop),
            "`self<N>`: identity::stateless::Scales",
        ),
        (generic::<_, 2>(dir.path(), &[0.5], Scales { by: 3. }).map(drop), "`factors`: 2 items"),
        (generic::<_, 2>(dir.path(), &[0.5, 9.], Scales { by: 3. }).map(drop), "`factors[1]`: 8f64"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn weights_are_watched_behind_an_object_too() {
    let dir = tempfile::tempdir().unwrap();
    let open = |net| {
        let net: Box<dyn Net + Send> = Box::new(net);
        Cache::open(dir.path()).unwrap().module(Generic::<dyn Net + Send, 1> { factors: &[1.], net })
    };
    let net = projects(1.);
    let mut leaked = net.fc.ws.shallow_clone();
    let cached = open(net).unwrap();
    assert_eq!(values(&cached.forward(&[1], &input()).unwrap()), [3., 3.]);
    cached.flush().unwrap();
    let _ = tch::no_grad(|| leaked.fill_(7.));
    let error = cached.forward(&[2], &input()).unwrap_err().to_string();
    assert!(error.contains("weight `net.fc.weight`") && error.contains("changed in place"), "{error}");
    drop(cached);
    let error = open(projects(2.)).unwrap_err().to_string();
    assert!(error.contains("`net.fc.weights`: blake3:"), "{error}");
    assert_eq!(values(&open(projects(1.)).unwrap().forward(&[1], &input()).unwrap()), [3., 3.]);
}

/// Fields that are not part of the identity, or waived: neither is compared.
#[cached_module(id = "waived_v1", key = i64)]
struct Waived {
    by: f64,
    #[tcx(not_identity)]
    batch: usize,
    #[tcx(assume_stateless)]
    calls: std::sync::atomic::AtomicU64,
}

impl Extractor for Waived {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        self.calls.fetch_add(self.batch as u64, std::sync::atomic::Ordering::Relaxed);
        Ok((x * self.by).into())
    }
}

#[test]
fn what_is_left_out_may_differ() {
    let dir = tempfile::tempdir().unwrap();
    let open = |by, batch| {
        Cache::open(dir.path()).unwrap().module(Waived { by, batch, calls: (batch as u64).into() })
    };
    let cached = open(2., 8).unwrap();
    cached.forward(&[1], &Tensor::ones([1, 2], kind::FLOAT_CPU)).unwrap();
    cached.flush().unwrap();
    drop(cached);
    let cached = open(2., 64).unwrap();
    let output = cached.forward(&[1], &Tensor::zeros([1, 2], kind::FLOAT_CPU)).unwrap();
    assert_eq!((values(&output), cached.stats().misses), (vec![2., 2.], 0));
    drop(cached);
    assert!(open(3., 8).is_err());
}
