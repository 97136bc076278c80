//! Outputs with arbitrary bits, NaN included, that depend on the seed of each sample only; and what is compared of them.

use tch::kind::INT64_CPU;
use tch::{Kind, Tensor};
use tcx::{DType, Element, Shape, Typed};

/// Arbitrary bits for each of the samples. Not contiguous from rank 2 on: the same values in another order.
pub fn bits(seeds: &Tensor, dims: &[usize], kind: Kind) -> Tensor {
    let mut dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    let rank = dims.len();
    if rank >= 2 {
        dims.swap(rank - 2, rank - 1);
    }
    let len: i64 = dims.iter().product();
    let numbers = seeds.reshape([-1, 1]) * 1_000_003 + Tensor::arange(len, INT64_CPU) * 7919;
    let mixed = numbers * 6_364_136_223_846_793_005_i64;
    let mixed = mixed.bitwise_xor_tensor(&mixed.bitwise_right_shift_tensor_scalar(29));
    let size: Vec<i64> = seeds.size().into_iter().chain(dims).collect();
    let bits = of_kind(&mixed.reshape(size), kind);
    if rank >= 2 { bits.transpose(-2, -1) } else { bits }
}

fn of_kind(numbers: &Tensor, kind: Kind) -> Tensor {
    match kind {
        Kind::Half | Kind::BFloat16 => numbers.to_kind(Kind::Int16).view_dtype(kind),
        Kind::Float => numbers.to_kind(Kind::Int).view_dtype(kind),
        Kind::Double => numbers.view_dtype(kind),
        Kind::Bool => numbers.bitwise_and(1).to_kind(Kind::Bool),
        _ => numbers.to_kind(kind),
    }
}

/// The dtype as tch knows it.
pub fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
        DType::I8 => Kind::Int8,
        DType::I16 => Kind::Int16,
        DType::I32 => Kind::Int,
        DType::I64 => Kind::Int64,
        DType::U8 => Kind::Uint8,
        DType::Bool => Kind::Bool,
        other => panic!("tch has no {other}"),
    }
}

/// A part of an output: what it is, and its bytes.
pub type Part = (String, Vec<u8>);

/// The parts of an output, to be compared bit for bit: by its numbers, NaN equals nothing.
pub trait Parts {
    fn parts(&self) -> Vec<Part>;
}

pub fn tensor(tensor: &Tensor) -> Part {
    let flat = tensor.contiguous().flatten(0, -1);
    let bytes = match flat.kind() {
        Kind::Bool => flat.to_kind(Kind::Uint8),
        _ => flat.view_dtype(Kind::Uint8),
    };
    (format!("{:?} {:?}", tensor.kind(), tensor.size()), Vec::try_from(bytes).unwrap())
}

impl<E: Element, S: Shape> Parts for Typed<E, S> {
    fn parts(&self) -> Vec<Part> {
        vec![tensor(self)]
    }
}

impl Parts for Vec<String> {
    fn parts(&self) -> Vec<Part> {
        self.iter().map(|text| (text.clone(), Vec::new())).collect()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Parts for Vec<$number> {
            fn parts(&self) -> Vec<Part> {
                vec![tensor(&Tensor::from_slice(self))]
            }
        }
    )*};
}

numbers!(tcx::f16, tcx::bf16, f32, f64, i8, i16, i32, i64, u8, bool);

impl<A: Parts, B: Parts> Parts for (A, B) {
    fn parts(&self) -> Vec<Part> {
        [self.0.parts(), self.1.parts()].concat()
    }
}

impl<A: Parts, B: Parts, C: Parts, D: Parts, E: Parts, F: Parts> Parts for (A, B, C, D, E, F) {
    fn parts(&self) -> Vec<Part> {
        let first = [self.0.parts(), self.1.parts(), self.2.parts()].concat();
        [first, self.3.parts(), self.4.parts(), self.5.parts()].concat()
    }
}
