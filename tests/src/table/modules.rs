//! One module for each form of output and each dtype, with every rank in it.

use std::marker::PhantomData;

use tch::{Kind, Tensor};
use tcx::{CacheableOutput, D0, D1, D2, D3, D4, D5, Element, Extractor, Shape, Typed, cached_module};

use crate::bits::{Part, Parts, bits, kind, tensor};

/// An output that can be made from seeds.
pub trait Made: CacheableOutput + Parts {
    fn made(seeds: &Tensor) -> Self;
}

/// Returns an output of any type.
#[cached_module(id = "makes_v1", key = i64)]
pub struct Makes<O: Made> {
    output: PhantomData<fn() -> O>,
}

impl<O: Made> Default for Makes<O> {
    fn default() -> Self {
        Self { output: PhantomData }
    }
}

impl<O: Made> Extractor for Makes<O> {
    type Input = Tensor;
    type Output = O;

    fn forward(&self, seeds: &Tensor) -> tcx::Result<O> {
        Ok(O::made(seeds))
    }
}

impl<E: Element, S: Shape> Made for Typed<E, S> {
    fn made(seeds: &Tensor) -> Self {
        bits(seeds, S::DIMS, kind(E::DTYPE)).into()
    }
}

pub type Rank0<E> = Typed<E, D0>;
pub type Rank1<E> = Typed<E, D1<5>>;
pub type Rank2<E> = Typed<E, D2<3, 2>>;
pub type Rank3<E> = Typed<E, D3<2, 1, 33>>;
pub type Rank4<E> = Typed<E, D4<2, 3, 1, 2>>;
pub type Rank5<E> = Typed<E, D5<1, 2, 2, 3, 1>>;

/// Every rank.
pub type Tuple<E> = (Rank0<E>, Rank1<E>, Rank2<E>, Rank3<E>, Rank4<E>, Rank5<E>);

impl<E: Element> Made for Tuple<E> {
    fn made(seeds: &Tensor) -> Self {
        (
            Made::made(seeds),
            Made::made(seeds),
            Made::made(seeds),
            Made::made(seeds),
            Made::made(seeds),
            Made::made(seeds),
        )
    }
}

/// A struct in a struct, and in a tuple.
#[derive(CacheableOutput)]
pub struct Nested<O: CacheableOutput> {
    label: Vec<i64>,
    inner: Inner<O>,
    pair: (O, Vec<bool>),
}

/// Deeper still.
#[derive(CacheableOutput)]
pub struct Inner<O: CacheableOutput>(O);

impl<O: Made> Made for Nested<O> {
    fn made(seeds: &Tensor) -> Self {
        let label: Vec<i64> = Vec::try_from(seeds).unwrap();
        let odd = label.iter().map(|seed| seed % 2 == 1).collect();
        Self { label, inner: Inner(O::made(seeds)), pair: (O::made(&(seeds + 1)), odd) }
    }
}

impl<O: Parts + CacheableOutput> Parts for Nested<O> {
    fn parts(&self) -> Vec<Part> {
        [self.label.parts(), self.inner.0.parts(), self.pair.parts()].concat()
    }
}

/// A tensor for each sample, of a shape that its seed decides.
pub fn each(seeds: &Tensor, kind: Kind, dims: impl Fn(usize) -> Vec<usize>) -> Vec<Tensor> {
    let seeds: Vec<i64> = Vec::try_from(seeds).unwrap();
    let of = |seed: i64| bits(&Tensor::from_slice(&[seed]), &dims(seed as usize), kind).get(0);
    seeds.into_iter().map(of).collect()
}

/// A dtype's struct, and the module that declares the same one in place.
macro_rules! features {
    ($dtype:ident, $kind:ident, $features:ident, $module:ident, $output:ident, $id:literal) => {
        #[derive(CacheableOutput)]
        pub struct $features {
            #[tensor($dtype, [])]
            rank0: Tensor,
            #[tensor($dtype, [5])]
            rank1: Tensor,
            #[tensor($dtype, [3, 2])]
            rank2: Tensor,
            #[tensor($dtype, [2, 1, 33])]
            rank3: Tensor,
            #[tensor($dtype, [2, 3, 1, 2])]
            rank4: Tensor,
            #[tensor($dtype, [1, 2, 2, 3, 1])]
            rank5: Tensor,
            #[tensor($dtype, [_, 2])]
            ragged: Vec<Tensor>,
            #[tensor($dtype, [_, 2, _])]
            grids: Vec<Tensor>,
        }

        #[cached_module(
            id = $id,
            key = i64,
            output(
                rank0: tensor($dtype, []),
                rank1: tensor($dtype, [5]),
                rank2: tensor($dtype, [3, 2]),
                rank3: tensor($dtype, [2, 1, 33]),
                rank4: tensor($dtype, [2, 3, 1, 2]),
                rank5: tensor($dtype, [1, 2, 2, 3, 1]),
                ragged: tensor($dtype, [_, 2]),
                grids: tensor($dtype, [_, 2, _]),
            )
        )]
        #[derive(Default)]
        pub struct $module;

        impl Extractor for $module {
            type Input = Tensor;
            type Output = $output;

            fn forward(&self, seeds: &Tensor) -> tcx::Result<$output> {
                let $features { rank0, rank1, rank2, rank3, rank4, rank5, ragged, grids } = Made::made(seeds);
                Ok($output { rank0, rank1, rank2, rank3, rank4, rank5, ragged, grids })
            }
        }

        impl Made for $features {
            fn made(seeds: &Tensor) -> Self {
                let bits = |dims: &[usize]| bits(seeds, dims, Kind::$kind);
                Self {
                    rank0: bits(&[]),
                    rank1: bits(&[5]),
                    rank2: bits(&[3, 2]),
                    rank3: bits(&[2, 1, 33]),
                    rank4: bits(&[2, 3, 1, 2]),
                    rank5: bits(&[1, 2, 2, 3, 1]),
                    ragged: each(seeds, Kind::$kind, |seed| vec![seed % 4, 2]),
                    grids: each(seeds, Kind::$kind, |seed| vec![seed % 3, 2, seed % 5]),
                }
            }
        }

        features!(@parts $features);
        features!(@parts $output);
    };
    (@parts $output:ident) => {
        impl Parts for $output {
            fn parts(&self) -> Vec<Part> {
                let Self { rank0, rank1, rank2, rank3, rank4, rank5, ragged, grids } = self;
                let dense = [rank0, rank1, rank2, rank3, rank4, rank5];
                dense.into_iter().chain(ragged).chain(grids).map(tensor).collect()
            }
        }
    };
}

features!(f16, Half, F16, InPlaceF16, InPlaceF16Output, "in_place_f16_v1");
features!(bf16, BFloat16, BF16, InPlaceBF16, InPlaceBF16Output, "in_place_bf16_v1");
features!(f32, Float, F32, InPlaceF32, InPlaceF32Output, "in_place_f32_v1");
features!(f64, Double, F64, InPlaceF64, InPlaceF64Output, "in_place_f64_v1");
features!(i8, Int8, I8, InPlaceI8, InPlaceI8Output, "in_place_i8_v1");
features!(i16, Int16, I16, InPlaceI16, InPlaceI16Output, "in_place_i16_v1");
features!(i32, Int, I32, InPlaceI32, InPlaceI32Output, "in_place_i32_v1");
features!(i64, Int64, I64, InPlaceI64, InPlaceI64Output, "in_place_i64_v1");
features!(u8, Uint8, U8, InPlaceU8, InPlaceU8Output, "in_place_u8_v1");
features!(bool, Bool, Bool, InPlaceBool, InPlaceBoolOutput, "in_place_bool_v1");
