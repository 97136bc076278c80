//! Networks of candle: frozen, built when they are needed, and refused where they could change.

#![cfg(feature = "candle")]
#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{DType, Device, Module, ModuleT, Tensor, Var};
use candle_nn::{BatchNorm, Linear, VarBuilder, batch_norm, linear};
use tcx::{Cache, Cached, D1, ErrorKind, Extractor, Frozen, Identity, Result, Typed, Weights, cached_module};

#[cached_module(id = "candle_head_v1")]
struct Head {
    fc: Frozen<Linear>,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>, Tensor>;

    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        Ok(self.fc.forward(x)?.into())
    }
}

/// A file with a layer whose weights are all `weight`, and with another tensor.
fn file(dir: &Path, weight: f32) -> PathBuf {
    let file = dir.join("fc.safetensors");
    let full = |shape: &[usize], value: f32| Tensor::full(value, shape, &Device::Cpu).unwrap();
    let tensors = HashMap::from([
        ("fc.weight", full(&[2, 4], weight)),
        ("fc.bias", full(&[2], 0.)),
        ("unused", full(&[1], 0.)),
    ]);
    candle_core::safetensors::save(&tensors, &file).unwrap();
    file
}

#[expect(clippy::needless_pass_by_value, reason = "as `Frozen::candle` calls it")]
fn build(vb: VarBuilder<'_>) -> candle_core::Result<Linear> {
    linear(4, 2, vb.pp("fc"))
}

fn load(file: &Path) -> Result<Frozen<Linear>> {
    Frozen::candle(&Device::Cpu, DType::F32, file, build)
}

fn ones(samples: usize) -> Tensor {
    Tensor::ones((samples, 4), DType::F32, &Device::Cpu).unwrap()
}

fn rows(output: &Tensor) -> Vec<Vec<f32>> {
    output.to_vec2().unwrap()
}

#[test]
fn a_file_of_other_weights_is_another_cache() {
    let dir = tempfile::tempdir().unwrap();
    let open = |weight| {
        let fc = load(&file(dir.path(), weight)).unwrap();
        Cache::open(dir.path().join("cache")).unwrap().module(Head { fc })
    };
    let head = open(1.).unwrap();
    assert_eq!(rows(&head.forward(&["a"], &ones(1)).unwrap()), [[4., 4.]]);
    head.flush().unwrap();
    drop(head);
    let error = open(2.).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("`fc.weights`: blake3:"), "{error}");
}

/// Built when a sample is missing.
fn lazy(cache: &Path, file: &Path) -> Result<Cached<Head>> {
    let mut identity = Identity::default();
    identity.type_name("Head");
    identity.field("fc", &Weights::of_part(file, |name| name.starts_with("fc."))?);
    let file = file.to_owned();
    Cache::open(cache)?.lazy_module(identity, &Device::Cpu, move || Ok(Head { fc: load(&file)? }))
}

#[test]
fn a_network_is_built_when_a_sample_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, file) = (dir.path().join("cache"), file(dir.path(), 1.));
    let head = lazy(&cache, &file).unwrap();
    assert_eq!(rows(&head.forward(&["a"], &ones(1)).unwrap()), [[4., 4.]]);
    head.flush().unwrap();
    drop(head);
    // The weights are hashed, and not built: nothing is missing.
    let head = lazy(&cache, &file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(rows(&head.forward(&["a"], &ones(1)).unwrap()), [[4., 4.]]);
    let error = head.forward(&["b"], &ones(1)).map(drop).unwrap_err().to_string();
    assert!(error.contains("fc.safetensors`: cannot be read"), "{error}");
}

#[test]
fn a_file_that_changes_between_its_fingerprint_and_the_network_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let head = lazy(&cache, &file(dir.path(), 1.)).unwrap();
    let changed = file(dir.path(), 2.);
    let error = head.forward(&["a"], &ones(1)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModuleViolation);
    assert!(error.to_string().contains("the built module has another identity"), "{error}");
    assert!(!head.coverage(&["a"]).unwrap().is_complete());
    drop(head);
    // A network that was built before has the weights of its fingerprint.
    let fc = load(&changed).unwrap();
    file(dir.path(), 3.);
    assert_eq!(rows(&fc.forward(&ones(1)).unwrap()), [[8., 8.]]);
    assert_eq!(fc.fingerprint(), load(&file(dir.path(), 2.)).unwrap().fingerprint());
}

#[test]
fn a_file_that_does_not_fit_the_network_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path(), 1.);
    let refused = |build: fn(VarBuilder<'_>) -> candle_core::Result<Linear>| {
        let refused = Frozen::candle(&Device::Cpu, DType::F32, &file, build).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidWeights);
        format!("{refused:#}")
    };
    let error = refused(|vb| linear(4, 2, vb.pp("head")));
    assert!(
        error.contains("fc.safetensors`: does not fit the network") && error.contains("head.weight"),
        "{error}"
    );
    let error = refused(|vb| linear(5, 2, vb.pp("fc")));
    assert!(error.contains("weight `fc.weight`: expected shape [2, 5], found [2, 4]"), "{error}");
    let error = refused(|_| Ok(Linear::new(ones(2), None)));
    assert!(error.contains("asks for none of its weights"), "{error}");
    std::fs::write(&file, "no tensors").unwrap();
    let error = refused(build);
    assert!(error.contains("cannot be read as a file of tensors in the format `.safetensors`"), "{error}");
}

#[test]
fn weights_that_two_layers_share_are_one_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let build = |vb: VarBuilder<'_>| Ok((build(vb.clone())?, build(vb)?));
    let both = Frozen::candle(&Device::Cpu, DType::F32, file(dir.path(), 1.), build).unwrap();
    assert_eq!(both.0.weight().id(), both.1.weight().id());
    assert_eq!(both.fingerprint(), load(&file(dir.path(), 1.)).unwrap().fingerprint());
}

#[test]
fn a_network_whose_type_holds_a_variable_is_refused() {
    let refused =
        Frozen::candle(&Device::Cpu, DType::F32, "no file", |_| Var::zeros(2, DType::F32, &Device::Cpu));
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("holds a `Var`"), "{error}");
}

#[cached_module(id = "candle_hidden_v1")]
struct Hidden {
    #[tcx(assume_stateless)]
    fc: Linear,
}

impl Extractor for Hidden {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>, Tensor>;

    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        Ok(self.fc.forward(x)?.into())
    }
}

#[test]
fn a_hidden_variable_is_an_error_of_the_first_batch() {
    let dir = tempfile::tempdir().unwrap();
    let variable = Var::ones((2, 4), DType::F32, &Device::Cpu).unwrap();
    let fc = Linear::new(variable.as_tensor().clone(), None);
    let hidden = Cache::open(dir.path()).unwrap().module(Hidden { fc }).unwrap();
    let error = hidden.forward(&["a"], &ones(1)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModuleViolation);
    assert!(error.to_string().contains("a trainable tensor takes part"), "{error}");
}

#[test]
fn weights_that_are_written_to_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    let weight = fc.weight().clone();
    let head = Cache::open(dir.path().join("cache")).unwrap().module(Head { fc }).unwrap();
    head.forward(&["a"], &ones(1)).unwrap();
    weight.slice_set(&Tensor::zeros((1, 4), DType::F32, &Device::Cpu).unwrap(), 0, 0).unwrap();
    let error = head.forward(&["b"], &ones(1)).map(drop).unwrap_err().to_string();
    assert!(error.contains("weight `fc.fc.weight`: changed in place after it was frozen"), "{error}");
    assert!(head.flush().is_err());
}

#[cached_module(id = "candle_norm_v1")]
struct Normalized {
    norm: Frozen<BatchNorm>,
}

impl Extractor for Normalized {
    type Input = Tensor;
    type Output = Typed<f32, D1<4>, Tensor>;

    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        Ok(self.norm.forward_t(x, false)?.into())
    }
}

/// It keeps its running statistics in variables.
#[test]
fn a_batch_norm_that_is_trained_after_it_was_frozen_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("norm.safetensors");
    let full = |value: f32| Tensor::full(value, 4, &Device::Cpu).unwrap();
    let tensors = [("weight", 1.), ("bias", 0.), ("running_mean", 1.), ("running_var", 4.)];
    let tensors = HashMap::from(tensors.map(|(name, value)| (name, full(value))));
    candle_core::safetensors::save(&tensors, &file).unwrap();
    let load = || Frozen::candle(&Device::Cpu, DType::F32, &file, |vb| batch_norm(4, 0., vb));
    let cache = Cache::open(dir.path().join("cache")).unwrap();
    let norm = load().unwrap();
    let same = BatchNorm::clone(&norm);
    let normalized = cache.module(Normalized { norm }).unwrap();
    let three = (ones(1) * 3.).unwrap();
    assert_eq!(rows(&normalized.forward(&["a"], &three).unwrap()), [[1.; 4]]);
    let several = Tensor::arange(0f32, 8., &Device::Cpu).unwrap().reshape((2, 4)).unwrap();
    same.forward_t(&several, true).unwrap();
    let error = normalized.forward(&["b"], &three).map(drop).unwrap_err().to_string();
    assert!(error.contains("running_var`: changed in place after it was frozen"), "{error}");
    assert_eq!(
        rows(&cache.module(Normalized { norm: load().unwrap() }).unwrap().forward(&["a"], &three).unwrap()),
        [[1.; 4]]
    );
}

/// A layer whose batches are computed at once: the first two calls of `forward` wait for each other.
#[cached_module(id = "candle_head_at_once_v1", key = i64)]
struct AtOnce {
    fc: Frozen<Linear>,
    #[tcx(not_identity, assume_stateless)]
    first: &'static (Barrier, AtomicUsize),
}

impl Extractor for AtOnce {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>, Tensor>;

    fn forward(&self, x: &Tensor) -> Result<Self::Output> {
        let (both, calls) = self.first;
        if calls.fetch_add(1, Ordering::SeqCst) < 2 {
            both.wait();
        }
        Ok(self.fc.forward(x)?.into())
    }
}

#[test]
fn batches_are_computed_at_once_and_weights_that_change_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let first: &'static _ = Box::leak(Box::new((Barrier::new(2), AtomicUsize::new(0))));
    let fc = load(&file(dir.path(), 1.)).unwrap();
    let weight = fc.weight().clone();
    let module = AtOnce { fc, first };
    let head = Cache::open(dir.path().join("cache")).unwrap().module(module).unwrap().concurrency(2).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let head = &head;
            scope.spawn(move || {
                for id in 0..20 {
                    let ids = [id, 100 * thread + id];
                    assert_eq!(rows(&head.forward(&ids, &ones(2)).unwrap()), [[4., 4.], [4., 4.]]);
                }
            });
        }
    });
    head.flush().unwrap();
    weight.slice_set(&Tensor::zeros((1, 4), DType::F32, &Device::Cpu).unwrap(), 0, 0).unwrap();
    let ask = |id| head.forward(&[id], &ones(1)).map(drop).unwrap_err().to_string();
    let refused = std::thread::scope(|scope| {
        [1000, 1001].map(|id| scope.spawn(move || ask(id))).map(|thread| thread.join().unwrap())
    });
    assert!(refused.iter().all(|error| error.contains("changed in place")), "{refused:?}");
}

#[test]
fn weights_are_saved_for_every_library() {
    let dir = tempfile::tempdir().unwrap();
    let fc = load(&file(dir.path(), 1.)).unwrap();
    let saved = dir.path().join("saved.safetensors");
    fc.save(&saved).unwrap();
    assert_eq!(load(&saved).unwrap().fingerprint(), fc.fingerprint());
    let build = |p: &tch::nn::Path<'_>| tch::nn::linear(p / "fc", 4, 2, tch::nn::LinearConfig::default());
    let torch = Frozen::load(tch::Device::Cpu, &saved, build).unwrap();
    assert_eq!(torch.fingerprint(), fc.fingerprint());
    let error = fc.save(dir.path().join("saved.pt")).unwrap_err().to_string();
    assert!(error.contains("only tch has other formats than `.safetensors`"), "{error}");
}
