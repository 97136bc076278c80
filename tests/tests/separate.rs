//! A sweep over weights or settings with `OnMismatch::Separate`: each identity has a cache of its own under one id.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;

use tch::nn::{self, Module};
use tch::{Device, Tensor};
use tcx::{
    Cache, D1, ErrorKind, Extractor, Frozen, Identity, Mode, OnMismatch, Table, Typed, Weights, cached_module,
};
use tcx_tests::Scaled;

fn separate(dir: &Path) -> Cache {
    Cache::builder().on_mismatch(OnMismatch::Separate).open(dir).unwrap()
}

/// How many of these samples are computed; each is right.
fn computed(cache: &Cache, weight: f64, ids: &[i64]) -> u64 {
    let scaled = cache.module(Scaled::new(weight)).unwrap();
    let before = scaled.stats().rows_computed;
    Scaled::check(&scaled.forward(ids, &Scaled::input(ids)).unwrap(), ids, weight);
    scaled.stats().rows_computed - before
}

fn folders(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_sweep_over_weights_computes_each_once_and_needs_no_new_id() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let cache = separate(dir.path());
        for weight in [1., 2., 3.] {
            assert_eq!(computed(&cache, weight, &[1, 2]), if round == 0 { 2 } else { 0 });
        }
        cache.close().unwrap();
    }
    let folders = folders(dir.path());
    assert_eq!(folders.len(), 3);
    assert!(folders.iter().all(|folder| folder.starts_with("scaled_v1+")), "{folders:?}");
}

#[test]
fn the_cache_that_was_there_first_keeps_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let first = Cache::open(dir.path()).unwrap();
    assert_eq!(computed(&first, 1., &[1]), 1);
    first.close().unwrap();
    let cache = separate(dir.path());
    assert_eq!(computed(&cache, 1., &[1]), 0);
    assert_eq!(computed(&cache, 2., &[1]), 1);
    cache.close().unwrap();
    assert_eq!(folders(dir.path()).len(), 2);
    let error = Cache::open(dir.path()).unwrap().module(Scaled::new(2.)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(
        error.to_string().contains("set `OnMismatch::Separate` to keep a cache for each identity"),
        "{error}"
    );
}

#[test]
fn every_mode_finds_the_cache_of_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = separate(dir.path());
    assert_eq!(computed(&cache, 1., &[1, 2]), 2);
    assert_eq!(computed(&cache.with_mode(Mode::ReadOnly), 1., &[1, 2]), 0);
    assert_eq!(computed(&cache.with_mode(Mode::ReadOnly), 2., &[1]), 1);
    assert_eq!(computed(&cache.with_mode(Mode::Recompute), 1., &[1]), 1);
    cache.close().unwrap();
    assert_eq!(folders(dir.path()).len(), 1, "a reader creates no folder");
}

#[test]
fn tables_of_different_metadata_or_columns_are_separate() {
    let dir = tempfile::tempdir().unwrap();
    for cache in [separate(dir.path()), separate(dir.path())] {
        for version in ["1", "2"] {
            let table = Table::<Vec<i64>>::builder("numbers_v1").metadata("version", version);
            let table = table.open(&cache).unwrap();
            let found = table.get_or_compute(&["a"], |_| Ok(vec![version.len() as i64])).unwrap();
            assert_eq!(found, [1]);
        }
        let floats = cache.table::<Vec<f32>>("numbers_v1").unwrap();
        assert_eq!(floats.get_or_compute(&["a"], |_| Ok(vec![0.5])).unwrap(), [0.5]);
        cache.close().unwrap();
    }
    assert_eq!(folders(dir.path()).len(), 3);
}

#[test]
fn a_separate_cache_in_memory_serves_no_row_of_another_identity() {
    let cache = Cache::builder().on_mismatch(OnMismatch::Separate).open_in_memory().unwrap();
    for expected in [2, 0] {
        assert_eq!(computed(&cache, 1., &[1, 2]), expected);
        assert_eq!(computed(&cache, 2., &[1, 2]), expected);
    }
}

#[cached_module(id = "after_scaled_v1", key = i64)]
struct Sums {}

impl Extractor for Sums {
    type Input = Tensor;
    type Output = Vec<f64>;

    fn forward(&self, features: &Tensor) -> tcx::Result<Vec<f64>> {
        Ok(Vec::try_from(features.f_sum_dim_intlist([1i64].as_slice(), false, tch::Kind::Double)?)?)
    }
}

#[test]
fn a_module_after_each_of_them_is_separate_too() {
    let dir = tempfile::tempdir().unwrap();
    let cache = separate(dir.path());
    for weight in [1., 2., 1.] {
        let scaled = cache.module(Scaled::new(weight)).unwrap();
        let sums = cache.module_after(&scaled, Sums {}).unwrap();
        let features = scaled.forward(&[3], &Scaled::input(&[3])).unwrap();
        assert_eq!(sums.forward(&[3], &features).unwrap(), [24. * weight]);
    }
    cache.close().unwrap();
    assert_eq!(folders(dir.path()).len(), 4);
}

#[cached_module(id = "swept_linear_v1", key = i64)]
struct Linear {
    fc: Frozen<nn::Linear>,
}

impl Extractor for Linear {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.fc.forward(inputs).into())
    }
}

#[test]
fn a_lazy_module_finds_the_cache_of_its_weights_without_being_built() {
    let dir = tempfile::tempdir().unwrap();
    let build = |path: &nn::Path<'_>| nn::linear(path, 4, 2, nn::LinearConfig::default());
    let files = [1, 2].map(|seed| {
        let file = dir.path().join(format!("{seed}.safetensors"));
        tch::manual_seed(seed);
        Frozen::build(nn::VarStore::new(Device::Cpu), build).unwrap().save(&file).unwrap();
        file
    });
    let cache = separate(&dir.path().join("cache"));
    for round in 0..2 {
        for file in &files {
            let mut identity = Identity::default();
            identity.type_name("Linear");
            identity.field("fc", &Weights::of_file(file).unwrap());
            let own = file.clone();
            let lazy = cache.lazy_module(identity, Device::Cpu, move || {
                assert_eq!(round, 0, "it is built though its rows are stored");
                Ok(Linear { fc: Frozen::load(Device::Cpu, &own, build)? })
            });
            lazy.unwrap().forward(&[7], &Tensor::ones([1, 4], tch::kind::FLOAT_CPU)).unwrap();
        }
    }
    cache.close().unwrap();
    assert_eq!(folders(&dir.path().join("cache")).len(), 2);
}
