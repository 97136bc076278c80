//! Outputs other than tensors: a value per sample, of every type.

use tch::Tensor;
use tcx::{CacheableOutput, bf16, f16};

use super::modules::Made;
use crate::bits::{Part, Parts};

/// One value per sample.
#[derive(CacheableOutput)]
pub struct Values {
    caption: Vec<String>,
    half: (Vec<f16>, Vec<bf16>),
    float: (Vec<f32>, Vec<f64>),
    small: (Vec<i8>, Vec<u8>),
    medium: (Vec<i16>, Vec<i32>),
    large: (Vec<i64>, Vec<bool>),
    arrays: Arrays,
    labels: (Labels, Vec<bool>),
    #[tcx(skip)]
    pub skipped: Option<Tensor>,
}

/// Two of the five dimensions.
type Matrix = [[u8; 2]; 1];

/// Several numbers per sample.
#[derive(CacheableOutput)]
pub struct Arrays {
    half: Vec<[[f16; 3]; 2]>,
    brain: Vec<[[[bf16; 1]; 2]; 3]>,
    float: (Vec<[f32; 4]>, Vec<[f64; 1]>),
    small: (Vec<[i8; 3]>, Vec<[u8; 5]>),
    bools: (Vec<[bool; 3]>, Vec<[[bool; 2]; 2]>),
    medium: (Vec<[i16; 2]>, Vec<[i32; 2]>),
    large: Vec<[i64; 2]>,
    deep: Vec<[[[Matrix; 2]; 1]; 2]>,
}

/// Enums.
#[derive(CacheableOutput, Debug)]
pub struct Labels {
    label: Vec<Label>,
    signed: Vec<Signed>,
    far: Vec<Far>,
}

/// Stored as `u8`.
#[derive(CacheableOutput, Clone, Copy, Debug)]
pub enum Label {
    Cat,
    Dog = 200,
    r#Else,
}

/// Stored as `i16`.
#[derive(CacheableOutput, Clone, Copy, Debug)]
#[repr(i8)]
pub enum Signed {
    Low = -100,
    High = 100,
}

/// Stored as `i32`.
#[derive(CacheableOutput, Clone, Copy, Debug)]
pub enum Far {
    Low = i32::MIN as isize,
    High = i32::MAX as isize,
}

/// Arbitrary bits for each of the samples.
fn each(seeds: &[i64], salt: i64) -> impl Iterator<Item = i64> + '_ {
    seeds.iter().map(move |seed| (seed + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64))
}

impl Made for Values {
    fn made(seeds: &Tensor) -> Self {
        let values: Vec<i64> = Vec::try_from(seeds).unwrap();
        let each = || each(&values, 0);
        Self {
            caption: values.iter().map(|&seed| "é\0".repeat(seed as usize % 5)).collect(),
            half: (
                each().map(|bits| f16::from_bits(bits as u16)).collect(),
                each().map(|bits| bf16::from_bits(bits as u16)).collect(),
            ),
            float: (
                each().map(|bits| f32::from_bits(bits as u32)).collect(),
                each().map(|bits| f64::from_bits(bits as u64)).collect(),
            ),
            small: (each().map(|bits| bits as i8).collect(), each().map(|bits| bits as u8).collect()),
            medium: (each().map(|bits| bits as i16).collect(), each().map(|bits| bits as i32).collect()),
            large: (each().collect(), each().map(|bits| bits % 3 == 0).collect()),
            arrays: Arrays::made(&values),
            labels: (Labels::made(&values), vec![true; values.len()]),
            // Comes back as `None`.
            skipped: Some(seeds.shallow_clone()),
        }
    }
}

impl Arrays {
    fn made(seeds: &[i64]) -> Self {
        let each = |salt| each(seeds, salt);
        let half = |bits: i64| f16::from_bits(bits as u16);
        let brain = |bits: i64| bf16::from_bits(bits as u16);
        let floats = |bits: i64| [0, 8, 16, 24].map(|shift| f32::from_bits((bits >> shift) as u32));
        Self {
            half: each(1).map(|bits| [[half(bits), half(bits >> 8), half(!bits)]; 2]).collect(),
            brain: each(2).map(|bits| [[[brain(bits)], [brain(bits >> 16)]]; 3]).collect(),
            float: (
                each(3).map(floats).collect(),
                each(4).map(|bits| [f64::from_bits(bits as u64)]).collect(),
            ),
            small: (
                each(5).map(|bits| [0, 8, 16].map(|shift| (bits >> shift) as i8)).collect(),
                each(6).map(|bits| [0, 1, 2, 3, 4].map(|shift| (bits >> shift) as u8)).collect(),
            ),
            bools: (
                each(7).map(|bits| [1, 2, 4].map(|bit| bits & bit > 0)).collect(),
                each(8).map(|bits| [[1, 2], [4, 8]].map(|pair| pair.map(|bit| bits & bit > 0))).collect(),
            ),
            medium: (
                each(9).map(|bits| [bits as i16, (bits >> 9) as i16]).collect(),
                each(10).map(|bits| [bits as i32, (bits >> 9) as i32]).collect(),
            ),
            large: each(11).map(|bits| [bits, !bits]).collect(),
            deep: each(12).map(|bits| [[[[[bits as u8, 1]], [[2, bits as u8]]]]; 2]).collect(),
        }
    }
}

impl Labels {
    fn made(seeds: &[i64]) -> Self {
        let label = [Label::Cat, Label::Dog, Label::r#Else];
        Self {
            label: seeds.iter().map(|&seed| label[seed as usize % 3]).collect(),
            signed: seeds
                .iter()
                .map(|seed| [Signed::Low, Signed::High][usize::from(seed % 2 == 0)])
                .collect(),
            far: seeds.iter().map(|seed| [Far::Low, Far::High][usize::from(seed % 5 == 0)]).collect(),
        }
    }
}

impl Parts for Values {
    fn parts(&self) -> Vec<Part> {
        let numbers = [self.half.parts(), self.float.parts(), self.small.parts(), self.medium.parts()];
        let labels = vec![(format!("{:?}", self.labels), Vec::new())];
        [self.caption.parts(), numbers.concat(), self.large.parts(), self.arrays.parts(), labels].concat()
    }
}

impl Parts for Arrays {
    fn parts(&self) -> Vec<Part> {
        let Self { half, brain, float: (float, double), small, bools, medium, large, deep } = self;
        let floats = [
            half.as_flattened().to_vec().as_flattened().to_vec().parts(),
            brain.as_flattened().as_flattened().as_flattened().to_vec().parts(),
            float.as_flattened().to_vec().parts(),
            double.as_flattened().to_vec().parts(),
        ];
        let others = format!("{small:?} {bools:?} {medium:?} {large:?} {deep:?}");
        [floats.concat(), vec![(others, Vec::new())]].concat()
    }
}
