//! Rows are the same in every tensor library: each computes, stores and reads them, and what one has stored the others read.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;

use ndarray::{Array1, Array2, Array3, ArrayD};
#[cfg(feature = "ort")]
use ort::value::DynTensor;
use tch::Tensor;
use tcx::{Cache, CacheableOutput, DType, Element, ErrorKind, Ragged, Result, TensorLike, TensorMemory};
use tcx::{Extractor, cached_module};

fn tensor<E: Element, T: TensorLike>(elements: Vec<E>, shape: &[usize]) -> T {
    T::from_memory(TensorMemory::from(elements), shape).unwrap()
}

/// The samples of a batch, one after the other.
#[expect(clippy::needless_pass_by_value, reason = "rows of `Vec` are these samples")]
fn batch<T: TensorLike>(samples: Vec<Vec<f32>>) -> T {
    let shape = [samples.len(), samples.first().map_or(3, Vec::len)];
    tensor(samples.concat(), &shape)
}

fn row<E: Element, T: TensorLike>(sample: Vec<E>) -> T {
    let shape = [sample.len()];
    tensor(sample, &shape)
}

fn bytes<T: TensorLike>(tensor: &T) -> Vec<u8> {
    tensor.with_bytes(<[u8]>::to_vec).unwrap()
}

fn numbers<T: TensorLike>(tensor: &T) -> Vec<Vec<f32>> {
    let numbers: Vec<f32> =
        bytes(tensor).as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect();
    numbers.chunks(tensor.shape()[1]).map(<[f32]>::to_vec).collect()
}

/// The same for rows without a library.
mod plain {
    use tcx::Element;

    pub(super) fn row<E: Element>(sample: Vec<E>) -> Vec<E> {
        sample
    }

    pub(super) fn batch(samples: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
        samples
    }

    pub(super) fn bytes<E: Element>(row: &[E]) -> Vec<u8> {
        tcx::TensorMemory::from(row.to_vec()).bytes().to_vec()
    }

    pub(super) fn numbers(batch: &[Vec<f32>]) -> Vec<Vec<f32>> {
        batch.to_vec()
    }
}

/// NaN with a payload, one that signals, and two numbers that halves do not have.
fn special(sample: usize) -> Vec<f32> {
    vec![f32::from_bits(0x7fc1_2345), f32::from_bits(0xff81_2345), sample as f32 / 3.]
}

/// What every library has to do: `$batch` is its type for samples of numbers, `$integers` and `$numbers` those of one sample, and
/// `$via` has the functions that make them.
macro_rules! library {
    ($library:ident, $id:literal, $batch:ty, $integers:ty, $numbers:ty, $($via:tt)+) => {
        mod $library {
            use super::*;

            #[derive(CacheableOutput)]
            pub(super) struct Features {
                #[tensor(f32, [3])]
                dense: $batch,
                #[tensor(f32, [3], store = bf16)]
                halves: $batch,
                #[tensor(i64, [2])]
                some: Vec<Option<$integers>>,
                #[tensor(f64, [_])]
                words: Vec<$numbers>,
                label: Vec<String>,
            }

            impl Features {
                pub(super) fn make(samples: usize) -> Self {
                    let some = |sample: usize| vec![sample as i64, -1];
                    Self {
                        dense: $($via)+::batch((0..samples).map(special).collect()),
                        halves: $($via)+::batch((0..samples).map(special).collect()),
                        some: (0..samples)
                            .map(|sample| (sample % 2 == 0).then(|| $($via)+::row(some(sample))))
                            .collect(),
                        words: (0..samples).map(|sample| $($via)+::row(vec![0.1_f64; sample])).collect(),
                        label: (0..samples).map(|sample| sample.to_string()).collect(),
                    }
                }

                /// Every bit of it.
                pub(super) fn bits(&self) -> Vec<Vec<u8>> {
                    let batches = [&self.dense, &self.halves].into_iter();
                    let mut bits: Vec<Vec<u8>> = batches
                        .flat_map(|batch| $($via)+::numbers(batch))
                        .map(|sample| sample.iter().flat_map(|number| number.to_le_bytes()).collect())
                        .collect();
                    bits.extend(self.some.iter().map(|row| row.as_ref().map_or(vec![], |row| $($via)+::bytes(row))));
                    bits.extend(self.words.iter().map(|row| $($via)+::bytes(row)));
                    bits.extend(self.label.iter().map(|label| label.clone().into_bytes()));
                    bits
                }
            }

            pub(super) fn put(cache: &Path, ids: &[String]) -> Result<()> {
                let cache = Cache::open(cache)?;
                cache.table::<Features>("shared_v1")?.put(ids, &Features::make(ids.len()))?;
                cache.close()
            }

            pub(super) fn get(cache: &Path, ids: &[String]) -> Result<Vec<Vec<u8>>> {
                let found = Cache::open(cache)?.table::<Features>("shared_v1")?.get(ids)?;
                Ok(found.unwrap().bits())
            }

            #[derive(CacheableOutput)]
            struct Output {
                #[tensor(f32, [3])]
                dense: $batch,
            }

            #[cached_module(id = $id)]
            struct Sized {
                len: usize,
            }

            impl Extractor for Sized {
                type Input = $batch;
                type Output = Output;

                fn forward(&self, x: &$batch) -> Result<Output> {
                    let doubled = |sample: Vec<f32>| sample.iter().map(|number| number * 2.).take(self.len).collect();
                    let samples = $($via)+::numbers(x).into_iter().map(doubled).collect();
                    Ok(Output { dense: $($via)+::batch(samples) })
                }
            }

            #[test]
            fn only_missing_samples_are_computed() -> Result<()> {
                let dir = tempfile::tempdir().unwrap();
                let inputs = |of: &[f32]| $($via)+::batch(of.iter().map(|number| vec![*number; 3]).collect());
                let module = Cache::open(dir.path())?.module(Sized { len: 3 })?;
                module.forward(&["a", "b"], &inputs(&[1., 2.]))?;
                module.flush()?;
                drop(module);
                let module = Cache::open(dir.path())?.module(Sized { len: 3 })?;
                let found = module.forward(&["c", "b", "a"], &inputs(&[3., 0., 0.]))?;
                assert_eq!($($via)+::numbers(&found.dense), [[6.; 3], [4.; 3], [2.; 3]]);
                let found = module.fetch(&["a", "c"], |_| panic!("all is stored"))?;
                assert_eq!($($via)+::numbers(&found.dense), [[2.; 3], [6.; 3]]);
                Ok(())
            }

            #[test]
            fn an_output_of_another_shape_is_refused() -> Result<()> {
                let dir = tempfile::tempdir().unwrap();
                let module = Cache::open(dir.path())?.module(Sized { len: 2 })?;
                let input = $($via)+::batch(vec![vec![1.; 3]; 2]);
                let error = module.forward(&["a", "b"], &input).map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidOutput, "{error}");
                let error = error.to_string();
                assert!(error.contains("output field `dense`: expected f32 ["), "{error}");
                assert!(error.contains("found f32 ["), "{error}");
                Ok(())
            }
        }
    };
}

library!(torch, "sized_torch_v1", Tensor, Tensor, Tensor, super);
library!(arrays, "sized_arrays_v1", Array2<f32>, Array1<i64>, Array1<f64>, super);
library!(vecs, "sized_vecs_v1", Vec<Vec<f32>>, Vec<i64>, Vec<f64>, super::plain);
#[cfg(feature = "candle")]
library!(candle, "sized_candle_v1", candle_core::Tensor, candle_core::Tensor, candle_core::Tensor, super);
#[cfg(feature = "ort")]
library!(onnx, "sized_onnx_v1", DynTensor, DynTensor, DynTensor, super);

type Put = fn(&Path, &[String]) -> Result<()>;
type Get = fn(&Path, &[String]) -> Result<Vec<Vec<u8>>>;

/// Each library by its name, with what stores rows and what reads them.
const LIBRARIES: &[(&str, Put, Get)] = &[
    ("tch", torch::put, torch::get),
    ("ndarray", arrays::put, arrays::get),
    ("Vec", vecs::put, vecs::get),
    #[cfg(feature = "candle")]
    ("candle", candle::put, candle::get),
    #[cfg(feature = "ort")]
    ("ONNX Runtime", onnx::put, onnx::get),
];

#[test]
fn what_one_library_has_stored_every_other_reads_bit_for_bit() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..5).map(|id| id.to_string()).collect();
    let (_, _, get) = LIBRARIES[0];
    let mut first = None;
    for (writes, put, _) in LIBRARIES {
        let cache = dir.path().join(writes);
        put(&cache, &ids)?;
        let expected = first.get_or_insert(get(&cache, &ids)?);
        assert_eq!(expected[0][..4], 0x7fc1_2345_u32.to_le_bytes());
        for (reads, _, get) in LIBRARIES {
            assert!(get(&cache, &ids)? == *expected, "{reads} reads what {writes} has stored");
        }
    }
    Ok(())
}

/// What samples without a library cannot be: of more dimensions than one, and of all samples joined.
macro_rules! wide {
    ($name:ident, $halves:ty, $words:ty, $joined:ty) => {
        #[derive(CacheableOutput)]
        struct $name {
            #[tensor(f32, [2, 2], store = f16)]
            halves: $halves,
            #[tensor(f64, [_, 2])]
            words: Vec<$words>,
            #[tensor(f32, [_, 2])]
            joined: $joined,
        }

        impl $name {
            fn make(samples: usize) -> Self {
                let mut ends = vec![0_i64];
                (0..samples).for_each(|sample| ends.push(ends[sample] + sample as i64 % 3));
                let joined = ends[samples] as usize;
                Self {
                    halves: tensor((0..samples * 4).map(|at| at as f32 / 3.).collect(), &[samples, 2, 2]),
                    words: (0..samples)
                        .map(|sample| tensor(vec![sample as f64; sample * 2], &[sample, 2]))
                        .collect(),
                    joined: Ragged {
                        values: tensor(vec![0.5_f32; joined * 2], &[joined, 2]),
                        offsets: tensor(ends, &[samples + 1]),
                    },
                }
            }

            /// Dtypes, shapes and bytes.
            fn parts(&self) -> Vec<(DType, Vec<usize>, Vec<u8>)> {
                fn part<T: TensorLike>(tensor: &T) -> (DType, Vec<usize>, Vec<u8>) {
                    (tensor.dtype().unwrap(), tensor.shape(), bytes(tensor))
                }
                let mut parts =
                    vec![part(&self.halves), part(&self.joined.values), part(&self.joined.offsets)];
                parts.extend(self.words.iter().map(part));
                parts
            }
        }
    };
}

wide!(Torch, Tensor, Tensor, Ragged);
wide!(Arrays, Array3<f32>, Array2<f64>, Ragged<ArrayD<f32>, Array1<i64>>);
#[cfg(feature = "candle")]
wide!(Candle, candle_core::Tensor, candle_core::Tensor, Ragged<candle_core::Tensor>);

#[cfg(feature = "ort")]
wide!(Onnx, DynTensor, DynTensor, Ragged<DynTensor>);

#[test]
fn samples_of_two_dimensions_and_joined_samples_are_the_same_in_every_library() -> Result<()> {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..5).map(|id| id.to_string()).collect();
    macro_rules! exchange {
        ($writes:ident: $($reads:ident),*) => {
            let cache = Cache::open(dir.path().join(stringify!($writes)))?;
            cache.table::<$writes>("wide_v1")?.put(&ids, &$writes::make(5))?;
            cache.close()?;
            let cache = Cache::open(dir.path().join(stringify!($writes)))?;
            let expected = cache.table::<$writes>("wide_v1")?.get(&ids)?.unwrap().parts();
            $(
                let found = cache.table::<$reads>("wide_v1")?.get(&ids)?.unwrap();
                assert!(found.parts() == expected, "{} reads {}", stringify!($reads), stringify!($writes));
            )*
            cache.close()?;
        };
    }
    exchange!(Torch: Arrays);
    exchange!(Arrays: Torch);
    #[cfg(feature = "candle")]
    {
        exchange!(Torch: Candle);
        exchange!(Arrays: Candle);
        exchange!(Candle: Torch, Arrays);
    }
    #[cfg(feature = "ort")]
    {
        exchange!(Torch: Onnx);
        exchange!(Onnx: Torch, Arrays);
    }
    Ok(())
}

#[cached_module(
    id = "declared_in_place_v1",
    key = i64,
    output(rows: tensor(f32, [2]) as Array2<f32>, words: tensor(i64, [_]) as Vec<Array1<i64>>, label: Vec<String>)
)]
struct InPlace;

impl Extractor for InPlace {
    type Input = Vec<i64>;
    type Output = InPlaceOutput;

    fn forward(&self, numbers: &Vec<i64>) -> Result<InPlaceOutput> {
        Ok(InPlaceOutput {
            rows: Array2::from_shape_fn((numbers.len(), 2), |(row, _)| numbers[row] as f32),
            words: numbers.iter().map(|number| (0..*number).collect()).collect(),
            label: numbers.iter().map(i64::to_string).collect(),
        })
    }
}

#[test]
fn an_output_that_is_declared_in_place_names_its_types() -> Result<()> {
    let cached = Cache::in_memory().module(InPlace)?;
    cached.forward(&[1, 3], &vec![1, 3])?;
    let found = cached.fetch(&[3], |_| panic!("it is stored"))?;
    assert_eq!(found.rows, ndarray::arr2(&[[3., 3.]]));
    assert_eq!((found.words, found.label), (vec![ndarray::arr1(&[0, 1, 2])], vec!["3".to_owned()]));
    Ok(())
}

#[test]
fn tensors_of_tch_pass_whatever_their_layout() {
    tcx::testing::check_layouts::<Tensor>(|tensor| {
        let transposed = tensor.transpose(0, -1).contiguous().transpose(0, -1);
        let second = Tensor::stack(&[&tensor, &tensor], 0).select(0, 1);
        let sparse_in_memory = Tensor::stack(&[&tensor, &tensor], -1).select(-1, 0);
        vec![tensor, transposed, second, sparse_in_memory]
    })
    .unwrap();
}

#[cfg(feature = "candle")]
#[test]
fn tensors_of_candle_pass_whatever_their_layout() {
    tcx::testing::check_layouts::<candle_core::Tensor>(|tensor| {
        let mut layouts = vec![tensor.clone()];
        if tensor.rank() >= 2 && tensor.elem_count() > 0 {
            let transposed = |tensor: &candle_core::Tensor| tensor.transpose(0, tensor.rank() - 1).unwrap();
            layouts.push(transposed(&transposed(&tensor).contiguous().unwrap()));
            let twice = candle_core::Tensor::cat(&[&tensor, &tensor], 0).unwrap();
            let samples = tensor.dim(0).unwrap();
            layouts.push(twice.narrow(0, samples, samples).unwrap());
        }
        layouts
    })
    .unwrap();
}

#[cfg(feature = "ort")]
#[test]
fn tensors_of_onnx_runtime_pass_in_every_dtype() {
    tcx::testing::check_backend::<DynTensor>().unwrap();
}
