//! Outputs that differ from sample to sample (bytes, tensors of several sizes, optional values), and floats that are stored as
//! narrower ones.

use tch::{Kind, Tensor};
use tcx::{CacheableOutput, Ragged};

use super::modules::{Made, each};
use super::values::Label;
use crate::bits::{Part, Parts, bits, tensor};

/// Everything that differs from sample to sample.
#[derive(CacheableOutput)]
pub struct Varying {
    bytes: Vec<Vec<u8>>,
    maybe: Maybe,
    #[tensor(f32, [_, 3])]
    tokens: Vec<Tensor>,
    #[tensor(bool, [2, _])]
    mask: Vec<Tensor>,
    #[tensor(i16, [_, 2, _])]
    maps: Vec<Tensor>,
    #[tensor(f64, [_])]
    packed: Ragged,
    #[tensor(bf16, [_, 2])]
    pieces: Vec<Option<Tensor>>,
    #[tensor(i64, [_, _])]
    grids: Vec<Option<Tensor>>,
    #[tensor(u8, [3, 2])]
    image: Vec<Option<Tensor>>,
    #[tensor(bool, [])]
    flag: Vec<Option<Tensor>>,
    stored: Stored,
    pair: (Vec<Vec<u8>>, Vec<Option<Vec<u8>>>),
}

/// Values that not every sample has.
#[derive(CacheableOutput, Debug)]
pub struct Maybe {
    small: Vec<Option<bool>>,
    large: Vec<Option<i64>>,
    float: Vec<Option<f32>>,
    words: Vec<Option<String>>,
    array: Vec<Option<[[u8; 2]; 2]>>,
    label: Vec<Option<Label>>,
}

/// Floats whose values a narrower one holds exactly: what comes back is what was returned.
#[derive(CacheableOutput)]
pub struct Stored {
    #[tensor(f32, [3, 5], store = f16)]
    half: Tensor,
    #[tensor(f32, [4], store = bf16)]
    brain: Tensor,
    #[tensor(f32, [_, 2], store = f16)]
    tokens: Vec<Tensor>,
    #[tensor(f32, [_], store = bf16)]
    packed: Ragged,
    #[tensor(f32, [2], store = f16)]
    maybe: Vec<Option<Tensor>>,
}

/// What two of three samples have.
fn some<T>(seeds: &[i64], values: impl IntoIterator<Item = T>) -> Vec<Option<T>> {
    seeds.iter().zip(values).map(|(seed, value)| (seed % 3 > 0).then_some(value)).collect()
}

fn packed(tensors: &[Tensor]) -> Ragged {
    let ends = tensors.iter().scan(0, |end, tensor| {
        *end += tensor.size()[0];
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    Ragged { values: Tensor::cat(tensors, 0), offsets: Tensor::from_slice(&offsets) }
}

/// At least one tensor, as `cat` wants it, and nothing in it.
fn joined(tensors: Vec<Tensor>, kind: Kind) -> Ragged {
    let nothing = Tensor::zeros([0], (kind, tch::Device::Cpu));
    let mut packed = packed(&std::iter::once(nothing).chain(tensors).collect::<Vec<_>>());
    packed.offsets = packed.offsets.slice(0, 1, None, 1);
    packed
}

impl Made for Varying {
    fn made(seeds: &Tensor) -> Self {
        let values: Vec<i64> = Vec::try_from(seeds).unwrap();
        let bytes: Vec<Vec<u8>> = values.iter().map(|&seed| vec![seed as u8; seed as usize % 4]).collect();
        Self {
            maybe: Maybe::made(&values),
            tokens: each(seeds, Kind::Float, |seed| vec![seed % 4, 3]),
            mask: each(seeds, Kind::Bool, |seed| vec![2, seed % 3]),
            maps: each(seeds, Kind::Int16, |seed| vec![seed % 3, 2, seed % 5]),
            packed: joined(each(seeds, Kind::Double, |seed| vec![seed % 3]), Kind::Double),
            pieces: some(&values, each(seeds, Kind::BFloat16, |seed| vec![seed % 4, 2])),
            grids: some(&values, each(seeds, Kind::Int64, |seed| vec![seed % 2, seed % 7])),
            image: some(&values, each(seeds, Kind::Uint8, |_| vec![3, 2])),
            flag: some(&values, each(seeds, Kind::Bool, |_| vec![])),
            stored: Stored::made(seeds, &values),
            pair: (bytes.clone(), some(&values, bytes.clone())),
            bytes,
        }
    }
}

/// Further outputs of each dtype: joined tensors, and optional tensors.
macro_rules! varying {
    ($($dtype:ident, $kind:ident, $name:ident;)*) => {$(
        #[derive(CacheableOutput)]
        pub struct $name {
            #[tensor($dtype, [_])]
            packed: Ragged,
            #[tensor($dtype, [2])]
            maybe: Vec<Option<Tensor>>,
            #[tensor($dtype, [_, 3])]
            pieces: Vec<Option<Tensor>>,
        }

        impl Made for $name {
            fn made(seeds: &Tensor) -> Self {
                let values: Vec<i64> = Vec::try_from(seeds).unwrap();
                Self {
                    packed: joined(each(seeds, Kind::$kind, |seed| vec![seed % 4]), Kind::$kind),
                    maybe: some(&values, each(seeds, Kind::$kind, |_| vec![2])),
                    pieces: some(&values, each(seeds, Kind::$kind, |seed| vec![seed % 2, 3])),
                }
            }
        }

        impl Parts for $name {
            fn parts(&self) -> Vec<Part> {
                [self.packed.parts(), optional(&self.maybe), optional(&self.pieces)].concat()
            }
        }
    )*};
}

varying! {
    f16, Half, VaryingF16;
    bf16, BFloat16, VaryingBF16;
    f32, Float, VaryingF32;
    f64, Double, VaryingF64;
    i8, Int8, VaryingI8;
    i16, Int16, VaryingI16;
    i32, Int, VaryingI32;
    i64, Int64, VaryingI64;
    u8, Uint8, VaryingU8;
    bool, Bool, VaryingBool;
}

impl Maybe {
    fn made(seeds: &[i64]) -> Self {
        Self {
            small: some(seeds, seeds.iter().map(|seed| seed % 2 == 0)),
            large: some(seeds, seeds.iter().map(|seed| seed * 1_000_003 - 7)),
            float: some(seeds, seeds.iter().map(|&seed| seed as f32 / 3.)),
            words: some(seeds, seeds.iter().map(|&seed| "é".repeat(seed as usize % 5))),
            array: some(seeds, seeds.iter().map(|&seed| [[seed as u8, 1], [2, !seed as u8]])),
            label: some(seeds, seeds.iter().map(|seed| [Label::Cat, Label::Dog][(seed % 2) as usize])),
        }
    }
}

impl Stored {
    fn made(seeds: &Tensor, values: &[i64]) -> Self {
        let wide = |tensors: Vec<Tensor>| tensors.iter().map(|tensor| tensor.to_kind(Kind::Float)).collect();
        let tokens: Vec<Tensor> = wide(each(seeds, Kind::Half, |seed| vec![seed % 3, 2]));
        Self {
            half: bits(seeds, &[3, 5], Kind::Half).to_kind(Kind::Float),
            brain: bits(seeds, &[4], Kind::BFloat16).to_kind(Kind::Float),
            tokens,
            packed: joined(wide(each(seeds, Kind::BFloat16, |seed| vec![seed % 4])), Kind::Float),
            maybe: some(values, wide(each(seeds, Kind::Half, |_| vec![2]))),
        }
    }
}

fn tensors<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<Part> {
    tensors.into_iter().map(tensor).collect()
}

/// Which samples have a tensor, and the tensors.
fn optional(values: &[Option<Tensor>]) -> Vec<Part> {
    let present: Vec<bool> = values.iter().map(Option::is_some).collect();
    [vec![(format!("{present:?}"), Vec::new())], tensors(values.iter().flatten())].concat()
}

impl Parts for Ragged {
    fn parts(&self) -> Vec<Part> {
        tensors([&self.values, &self.offsets])
    }
}

impl Parts for Varying {
    fn parts(&self) -> Vec<Part> {
        let Stored { half, brain, tokens, packed, maybe } = &self.stored;
        let ragged = self.tokens.iter().chain(&self.mask).chain(&self.maps).chain(tokens);
        let some = [&self.pieces, &self.grids, &self.image, &self.flag, maybe].map(|some| optional(some));
        [
            vec![(format!("{:?} {:?} {:?}", self.bytes, self.maybe, self.pair), Vec::new())],
            tensors(ragged.chain([half, brain])),
            [self.packed.parts(), packed.parts()].concat(),
            some.concat(),
        ]
        .concat()
    }
}
