//! Modules that break a rule are refused: the output depends on the rest of the batch, is random now and then, or needs the
//! handle that is computing it.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::Mutex;

use tch::nn::{self, ModuleT};
use tch::{Device, Tensor};
use tcx::{Cache, Cached, D3, Extractor, Frozen, Typed, cached_module};

/// Texts, each as its number of words divided by the longest of the batch: a mean over padding.
#[cached_module(id = "padded_v1", key = i64)]
struct Padded;

impl Extractor for Padded {
    type Input = Vec<String>;
    type Output = Vec<f32>;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Vec<f32>> {
        let longest = texts.iter().map(String::len).max().unwrap_or(1);
        Ok(texts.iter().map(|text| text.len() as f32 / longest as f32).collect())
    }
}

/// Sums along the batch, as a `cumsum` over the wrong dimension.
#[cached_module(id = "summed_v1", key = i64)]
struct Summed;

impl Extractor for Summed {
    type Input = Vec<f32>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Vec<f32>) -> tcx::Result<Vec<f32>> {
        let sum = |sum: &mut f32, x: &f32| {
            *sum += x;
            Some(*sum)
        };
        Ok(inputs.iter().scan(0., sum).collect())
    }
}

fn refused<T>(result: tcx::Result<T>) -> String {
    let Err(error) = result else { panic!("it was accepted") };
    assert_eq!(error.kind(), tcx::ErrorKind::ModuleViolation, "{error}");
    error.to_string()
}

const DEPENDS: &str = "a sample's output depends on the rest of its batch";

#[test]
fn a_mean_over_the_padding_is_refused_however_the_batch_is_sorted() {
    for sorted in [[9, 5, 4, 3, 2], [2, 3, 4, 5, 9], [5, 2, 9, 4, 3]] {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cache::open(dir.path()).unwrap().module(Padded).unwrap();
        let texts: Vec<String> = sorted.iter().map(|&len| "x".repeat(len)).collect();
        let said = refused(cached.forward(&[0, 1, 2, 3, 4], &texts));
        assert!(said.contains(DEPENDS), "{said}");
        assert_eq!(cached.stats().rows_accepted, 0);
    }
    for pair in [[9, 2], [2, 9]] {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cache::open(dir.path()).unwrap().module(Padded).unwrap();
        let texts: Vec<String> = pair.iter().map(|&len| "x".repeat(len)).collect();
        assert!(refused(cached.forward(&[0, 1], &texts)).contains(DEPENDS));
    }
}

#[test]
fn a_sum_along_the_batch_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Summed).unwrap();
    // A batch of one sample cannot reveal the dependence.
    cached.forward(&[7], &vec![7.]).unwrap();
    let said = refused(cached.forward(&[0, 1, 2], &vec![1., 2., 3.]));
    assert!(said.contains(DEPENDS), "{said}");
    assert_eq!(cached.stats().rows_accepted, 1);
}

/// Sums along the batch, in an output that is not a floating-point number.
#[cached_module(id = "running_v1", key = i64)]
struct Running {
    output: String,
}

impl Extractor for Running {
    type Input = Vec<i64>;
    type Output = (Vec<i64>, Vec<String>, Vec<Option<f32>>, Vec<Vec<u8>>);

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Self::Output> {
        let sum = |sum: &mut i64, x: &i64| {
            *sum += x;
            Some(*sum)
        };
        let sums = inputs.iter().scan(0, sum);
        // An output that does not depend on the batch.
        let of = |output: &str| {
            let depends = self.output == output;
            sums.clone().map(move |sum| if depends { sum } else { 1 })
        };
        Ok((
            of("number").collect(),
            of("text").map(|sum| format!("sum {sum}")).collect(),
            of("presence").map(|sum| (sum == 1).then_some(0.5)).collect(),
            of("bytes").map(|sum| vec![sum as u8; 3]).collect(),
        ))
    }
}

#[test]
fn sums_along_the_batch_are_refused_as_numbers_texts_bytes_and_presence() {
    for output in ["number", "text", "presence", "bytes"] {
        for rows in [3, 8, 64] {
            let dir = tempfile::tempdir().unwrap();
            let cached = Cache::open(dir.path()).unwrap();
            let cached = cached.module(Running { output: output.to_owned() }).unwrap();
            let batch = |first: i64| (first..first + rows).collect::<Vec<_>>();
            let forward = |ids: &[i64]| cached.forward(ids, &vec![1; ids.len()]).map(drop);
            let failed = (0..10).find_map(|number| forward(&batch(number * rows)).err());
            let said = failed.unwrap_or_else(|| panic!("{output} in batches of {rows}")).to_string();
            let field =
                ["number", "text", "presence", "bytes"].iter().position(|own| *own == output).unwrap();
            let field = format!("{DEPENDS}: field `{field}` is not the same in ");
            assert!(said.contains(&field) && said.contains(" samples, "), "{said}");
            if rows >= 8 {
                assert_eq!(cached.stats().rows_accepted, 0, "nothing is stored");
            }
        }
    }
}

/// Labels that other kernels decide otherwise for one sample in 24, and numbers that they round otherwise in every sample.
#[cached_module(id = "tipping_v1", key = i64)]
struct Tipping;

impl Extractor for Tipping {
    type Input = Vec<i64>;
    type Output = (Vec<i64>, Vec<String>, Vec<Option<f32>>, Vec<[i16; 16]>, Vec<[u8; 16]>);

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Self::Output> {
        let other_kernels = inputs.len() >= 16;
        let tips = |x: &&i64| other_kernels && **x % 24 == 5;
        let label = |x: &i64| if tips(&x) { -x } else { *x };
        let rounded = |x: &i64| std::array::from_fn(|_| *x as i16 + i16::from(other_kernels));
        let mask = |x: &i64| {
            std::array::from_fn(|at| u8::from(at == 3) * 100 * u8::from(other_kernels) + (x % 100) as u8)
        };
        Ok((
            inputs.iter().map(label).collect(),
            inputs.iter().map(|x| label(x).to_string()).collect(),
            inputs.iter().map(|x| (!tips(&x)).then_some(1.)).collect(),
            inputs.iter().map(rounded).collect(),
            inputs.iter().map(mask).collect(),
        ))
    }
}

#[test]
fn labels_that_tip_in_few_samples_and_numbers_that_are_rounded_otherwise_are_accepted() {
    for rows in [16, 64] {
        let dir = tempfile::tempdir().unwrap();
        let cached = Cache::builder().recheck(0.25).open(dir.path()).unwrap().module(Tipping).unwrap();
        for batch in 0..40 {
            let ids: Vec<i64> = (batch * rows..batch * rows + rows).collect();
            cached.forward(&ids, &ids).unwrap();
        }
        assert!(cached.stats().rows_rechecked > 80);
    }
}

/// Computes another value for every n-th sample: a counter replaces randomness.
#[cached_module(id = "seldom_random_v1", key = i64)]
struct SeldomRandom {
    #[tcx(assume_stateless)]
    computed: &'static Mutex<i64>,
}

impl Extractor for SeldomRandom {
    type Input = Vec<i64>;
    type Output = (Vec<i64>, Vec<f32>);

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Self::Output> {
        let mut computed = self.computed.lock().unwrap();
        let label = |x: &i64| {
            *computed += 1;
            if *computed % 97 == 0 { -1 } else { *x }
        };
        Ok((inputs.iter().map(label).collect(), inputs.iter().map(|x| *x as f32).collect()))
    }
}

fn seldom_random(recheck: f64) -> (tempfile::TempDir, Cached<SeldomRandom>) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(recheck).open(dir.path()).unwrap();
    let cached = cache.module(SeldomRandom { computed: Box::leak(Box::default()) }).unwrap();
    (dir, cached)
}

const RANDOM: &str = "the same sample gave two different outputs: field `0` is not the same, for id ";

#[test]
fn a_module_that_is_seldom_random_is_refused_and_nothing_of_that_batch_is_stored() {
    let (_dir, cached) = seldom_random(1.);
    let batch = |first: i64| (first..first + 10).collect::<Vec<i64>>();
    let failed = (0..100).step_by(10).find_map(|first| {
        let ids = batch(first);
        Some((first, cached.forward(&ids, &ids).map(|_| ()).err()?))
    });
    let (first, error) = failed.expect("one in 97 is random, and each is computed twice");
    assert_eq!(error.kind(), tcx::ErrorKind::ModuleViolation, "{error}");
    let said = error.to_string();
    assert!(said.starts_with("module `seldom_random_v1`: ") && said.contains(RANDOM), "{said}");
    assert!(error.remedy().unwrap().contains("may be wrong") && error.field() == Some("0"), "{said}");
    let stats = cached.stats();
    assert_eq!(stats.rows_accepted, first as u64, "nothing of the batch is stored");
    assert_eq!(stats.rows_rechecked, first as u64 + 10);
    for ids in (0..first).step_by(10).map(batch) {
        assert_eq!(cached.fetch(&ids, |_| panic!("they are there")).unwrap().0, ids);
    }
    // The check of the next batch would probably pass.
    assert_eq!(cached.forward(&[1000], &vec![1000]).unwrap_err().to_string(), said);
}

#[test]
fn warming_computes_some_of_the_samples_once_more() {
    let ids: Vec<i64> = (0..20_000).collect();
    let load = |missing: tcx::Missing<'_, i64>| Ok(missing.ids().copied().collect());
    let (_dir, cached) = seldom_random(0.1);
    let error = cached.warm(&ids, load).unwrap_err();
    assert!(error.to_string().contains(RANDOM), "{error}");
    let (_dir, cached) = seldom_random(0.);
    assert_eq!(cached.warm(&ids, load).unwrap().computed, 20_000);
    assert_eq!(cached.stats().rows_rechecked, 0);
}

/// A module that breaks no rule.
#[cached_module(id = "squares_v1", key = i64)]
struct Squares;

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(inputs.iter().map(|x| x * x).collect())
    }
}

#[test]
fn the_part_that_is_computed_once_more_is_the_one_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.01).open(dir.path()).unwrap();
    let cached = cache.module(Squares).unwrap();
    let ids: Vec<i64> = (0..100_000).collect();
    cached.warm(&ids, |missing| Ok(missing.ids().copied().collect())).unwrap();
    // A thousand in 125 batches; five standard deviations are 450.
    let rechecked = cached.stats().rows_rechecked;
    assert!((550..=1450).contains(&rechecked), "{rechecked}");
    for odd in [-0.1, 1.1, f64::NAN] {
        let error = Cache::builder().recheck(odd).open(dir.path()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("`recheck`: expected a number from 0 to 1, found "), "{error}");
    }
}

/// Subtracts the mean of its inputs, if the batch is large.
#[cached_module(id = "late_crowd_v1", key = i64)]
struct LateCrowd;

impl Extractor for LateCrowd {
    type Input = Vec<f32>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Vec<f32>) -> tcx::Result<Vec<f32>> {
        let mean = if inputs.len() > 8 { inputs.iter().sum::<f32>() / inputs.len() as f32 } else { 0. };
        Ok(inputs.iter().map(|x| x - mean).collect())
    }
}

#[test]
fn a_batch_that_matters_only_later_is_noticed_by_the_standing_check() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.5).open(dir.path()).unwrap();
    let cached = cache.module(LateCrowd).unwrap();
    let input = |ids: &[i64]| ids.iter().map(|&id| id as f32).collect::<Vec<f32>>();
    let small: Vec<i64> = (0..8).collect();
    cached.forward(&small, &input(&small)).unwrap();
    // Of 16 samples, 8 are computed again, in a batch of their own.
    let large: Vec<i64> = (8..24).collect();
    let said = refused(cached.forward(&large, &input(&large)));
    assert!(said.contains(DEPENDS), "{said}");
    assert_eq!(cached.stats().rows_accepted, 8);
}

/// A sum whose parts are rounded as half precision rounds them, and whose order depends on the size of the batch, as that of a
/// kernel does.
#[cached_module(id = "rounded_sums_v1", key = i64)]
struct RoundedSums;

impl Extractor for RoundedSums {
    type Input = Vec<[f32; 64]>;
    type Output = Vec<f32>;

    fn forward(&self, inputs: &Self::Input) -> tcx::Result<Vec<f32>> {
        let parts = if inputs.len() >= 32 { 8 } else { 1 };
        let rounded = |sum: f32| f32::from_bits(sum.to_bits().wrapping_add(0x1000) & 0xffff_e000);
        let sum = |x: &[f32; 64]| x.chunks(64 / parts).map(|part| rounded(part.iter().sum())).sum();
        Ok(inputs.iter().map(sum).collect())
    }
}

#[test]
fn sums_that_happen_to_be_near_zero_may_differ_as_others_do() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::builder().recheck(0.25).open(dir.path()).unwrap().module(RoundedSums).unwrap();
    let number = |x: i64| ((x * 2_654_435_761 % 10_007) as f32 / 5_003.5) - 1.;
    let sample = |id: i64| std::array::from_fn(|place| number(id * 64 + place as i64 + 1));
    for batch in 0..40 {
        let ids: Vec<i64> = (batch * 64..batch * 64 + 64).collect();
        cached.forward(&ids, &ids.iter().map(|&id| sample(id)).collect()).unwrap();
    }
    assert!(cached.stats().rows_rechecked > 600);
}

/// Normalises with the running statistics, or, in training mode, with those of the batch, which changes the running ones.
#[cached_module(id = "norm_v1")]
struct Norm {
    norm: Frozen<nn::BatchNorm>,
    train: bool,
}

impl Extractor for Norm {
    type Input = Tensor;
    type Output = Typed<f32, D3<2, 2, 2>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.norm.forward_t(inputs, self.train).into())
    }
}

#[test]
fn a_frozen_batch_norm_is_refused_in_training_mode() {
    let norm = |train: bool| {
        let store = nn::VarStore::new(Device::Cpu);
        let norm = Frozen::build(store, |path| {
            let init = nn::BatchNormConfig { ws_init: nn::Init::Const(1.), ..Default::default() };
            nn::batch_norm2d(path, 2, init)
        });
        Norm { norm: norm.unwrap(), train }
    };
    for images in [3, 1] {
        let values: Vec<f32> = (0..images * 8).map(|value| (value * value) as f32).collect();
        let x = Tensor::from_slice(&values).view([images, 2, 2, 2]);
        let ids: Vec<String> = (0..images).map(|id| id.to_string()).collect();
        let dir = tempfile::tempdir().unwrap();
        let evaluated = Cache::open(dir.path()).unwrap().module(norm(false)).unwrap();
        evaluated.forward(&ids, &x).unwrap();
        assert_eq!(evaluated.stats().rows_accepted, images as u64);
        let dir = tempfile::tempdir().unwrap();
        let trained = Cache::open(dir.path()).unwrap().module(norm(true)).unwrap();
        for _ in 0..2 {
            let error = trained.forward(&ids, &x).map(drop).expect_err("it changes what it learned");
            assert_eq!(error.module_id(), Some("norm_v1"), "{error}");
        }
        assert_eq!(trained.stats().rows_accepted, 0, "nothing is stored");
    }
}
