//! What comes out of the cache is, bit for bit, what the module returns: computed, found, partly found, and
//! after the cache was opened again. The modules are exact per sample; their bits are arbitrary, NaN included.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use tch::{Kind, Tensor, kind};
use tcx::{Cache, CacheableOutput, CachedModule, D2, Extractor, Typed, cached_module};

/// Arbitrary bits that depend on the seed of each sample only.
fn bits(seeds: &Tensor, shape: &[i64], kind: Kind) -> Tensor {
    let len: i64 = shape.iter().product();
    let mixed = (seeds.reshape([-1, 1]) + Tensor::arange(len, kind::INT64_CPU) * 7919)
        * 6_364_136_223_846_793_005_i64;
    let size: Vec<i64> = seeds.size().into_iter().chain(shape.iter().copied()).collect();
    let high = mixed.bitwise_right_shift_tensor_scalar(17).reshape(&size);
    match kind {
        Kind::Half | Kind::BFloat16 => high.to_kind(Kind::Int16).view_dtype(kind),
        Kind::Float => high.to_kind(Kind::Int).view_dtype(kind),
        _ => high,
    }
}

/// The same bits as whole numbers, since NaN equals nothing.
fn as_bits(tensor: &Tensor) -> Tensor {
    match tensor.kind() {
        Kind::Half | Kind::BFloat16 => tensor.view_dtype(Kind::Int16),
        Kind::Float => tensor.view_dtype(Kind::Int),
        _ => tensor.shallow_clone(),
    }
}

fn same(a: &Tensor, b: &Tensor) {
    assert_eq!((a.kind(), a.size()), (b.kind(), b.size()));
    assert!(as_bits(a).equal(&as_bits(b)));
}

trait Same {
    fn same(&self, other: &Self);
}

fn seeds(range: std::ops::Range<i64>) -> (Vec<String>, Tensor) {
    let values: Vec<i64> = range.collect();
    (values.iter().map(|seed| format!("sample {seed}")).collect(), Tensor::from_slice(&values))
}

/// Computed, found, partly found with repeats, and after opening again.
fn is_exact<M: CachedModule<Input = Tensor, Key = <Numbers as CachedModule>::Key> + Send>(
    module: impl Fn() -> M,
) where
    M::Output: Same,
{
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let cache = Cache::open(dir.path()).unwrap();
        let cached = cache.module(module()).unwrap();
        for range in [0..7, 0..7, 3..12, 11..12, 0..0, 5..40] {
            let (mut ids, mut inputs) = seeds(range);
            ids.extend(ids.clone());
            inputs = Tensor::cat(&[&inputs, &inputs], 0);
            for _ in 0..2 {
                cached.forward(&ids, &inputs).unwrap().same(&module().forward(&inputs).unwrap());
            }
        }
        cache.flush().unwrap();
    }
}

/// A module of one dtype, at rank 0 to 3.
macro_rules! dense {
    ($test:ident, $module:ident, $features:ident, $dtype:ident, $kind:expr, $id:literal) => {
        #[derive(CacheableOutput)]
        struct $features {
            #[tensor($dtype, [])]
            rank0: Tensor,
            #[tensor($dtype, [5])]
            rank1: Tensor,
            #[tensor($dtype, [3, 2])]
            rank2: Tensor,
            #[tensor($dtype, [2, 1, 33])]
            rank3: Tensor,
        }

        impl Same for $features {
            fn same(&self, other: &Self) {
                same(&self.rank0, &other.rank0);
                same(&self.rank1, &other.rank1);
                same(&self.rank2, &other.rank2);
                same(&self.rank3, &other.rank3);
            }
        }

        #[cached_module(id = $id)]
        struct $module {}

        impl Extractor for $module {
            type Input = Tensor;
            type Output = $features;

            fn forward(&self, seeds: &Tensor) -> tcx::Result<$features> {
                let bits = |shape: &[i64]| bits(seeds, shape, $kind);
                // Transposed: not contiguous, the same values.
                let rank2 = bits(&[2, 3]).transpose(1, 2);
                Ok($features { rank0: bits(&[]), rank1: bits(&[5]), rank2, rank3: bits(&[2, 1, 33]) })
            }
        }

        #[test]
        fn $test() {
            is_exact(|| $module {});
        }
    };
}

dense!(f16_is_exact, F16, F16Features, f16, Kind::Half, "f16_v1");
dense!(bf16_is_exact, BF16, BF16Features, bf16, Kind::BFloat16, "bf16_v1");
dense!(f32_is_exact, F32, F32Features, f32, Kind::Float, "f32_v1");
dense!(i64_is_exact, I64, I64Features, i64, Kind::Int64, "i64_v1");

#[derive(CacheableOutput)]
struct Inner {
    score: Vec<f32>,
    #[tensor(bf16, [2, 2])]
    map: Tensor,
}

#[derive(CacheableOutput)]
struct Mixed {
    caption: Vec<String>,
    inner: Inner,
    count: Vec<i64>,
    small: Vec<u8>,
    keep: Vec<bool>,
    heads: (Typed<f32, D2<2, 3>>, Vec<f64>),
}

impl Same for Mixed {
    fn same(&self, other: &Self) {
        assert_eq!(self.caption, other.caption);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&self.inner.score), bits(&other.inner.score));
        same(&self.inner.map, &other.inner.map);
        assert_eq!((&self.count, &self.small, &self.keep), (&other.count, &other.small, &other.keep));
        same(&self.heads.0, &other.heads.0);
        assert_eq!(self.heads.1, other.heads.1);
    }
}

#[cached_module(id = "numbers_v1")]
struct Numbers {}

impl Extractor for Numbers {
    type Input = Tensor;
    type Output = Mixed;

    fn forward(&self, seeds: &Tensor) -> tcx::Result<Mixed> {
        let values: Vec<i64> = Vec::try_from(seeds)?;
        let each = || values.iter().copied();
        Ok(Mixed {
            caption: each().map(|seed| "é".repeat(seed as usize % 5)).collect(),
            inner: Inner {
                score: each().map(|seed| f32::from_bits((seed * 0x9e37_79b9) as u32)).collect(),
                map: bits(seeds, &[2, 2], Kind::BFloat16),
            },
            count: each().map(|seed| seed - 20).collect(),
            small: each().map(|seed| seed as u8).collect(),
            keep: each().map(|seed| seed % 3 == 0).collect(),
            heads: (bits(seeds, &[2, 3], Kind::Float).into(), each().map(|seed| seed as f64 / 3.).collect()),
        })
    }
}

#[test]
fn nested_structs_strings_numbers_and_tuples_are_exact() {
    is_exact(|| Numbers {});
}

#[cached_module(id = "direct_v1")]
struct Direct {}

impl Extractor for Direct {
    type Input = Tensor;
    type Output = Typed<f32, D2<2, 3>>;

    fn forward(&self, seeds: &Tensor) -> tcx::Result<Self::Output> {
        Ok(bits(seeds, &[2, 3], Kind::Float).into())
    }
}

impl Same for Typed<f32, D2<2, 3>> {
    fn same(&self, other: &Self) {
        same(self, other);
    }
}

#[test]
fn a_direct_return_is_exact() {
    is_exact(|| Direct {});
}
