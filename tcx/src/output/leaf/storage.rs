//! The dtype that elements have on disk: their own, or for `f32` a narrower one that the field asks for.

use std::borrow::Cow;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use tcx_store::DType;

use crate::identity::Identity;
use crate::tensor::Element;

/// The dtype of a column of `E` that is stored as `T`.
pub(super) const fn of<E: Element, T: Element>() -> DType {
    let same = E::DTYPE as u8 == T::DTYPE as u8;
    let narrower = matches!((E::DTYPE, T::DTYPE), (DType::F32, DType::F16 | DType::BF16));
    assert!(same || narrower, "only an `f32` can be stored as another type, `f16` or `bf16`");
    T::DTYPE
}

/// The elements as they are stored: rounded to the nearest, ties to even; what is too large becomes an infinity.
pub(super) fn narrow<E: Element, T: Element>(bytes: &[u8]) -> Cow<'_, [u8]> {
    match (E::DTYPE, T::DTYPE) {
        (DType::F32, DType::F16) => {
            Cow::Owned(rounded(bytes, f16::ZERO, HalfFloatSliceExt::convert_from_f32_slice))
        }
        (DType::F32, DType::BF16) => {
            Cow::Owned(rounded(bytes, bf16::ZERO, HalfFloatSliceExt::convert_from_f32_slice))
        }
        _ => Cow::Borrowed(bytes),
    }
}

fn rounded<H: bytemuck::NoUninit>(bytes: &[u8], zero: H, round: impl FnOnce(&mut [H], &[f32])) -> Vec<u8> {
    let floats = bytemuck::try_cast_slice(bytes).map_or_else(
        // Memory that the user gave to libtorch may be aligned to nothing.
        |_| Cow::Owned(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
        Cow::Borrowed,
    );
    let mut halves = vec![zero; floats.len()];
    round(&mut halves, &floats);
    bytemuck::cast_slice(&halves).to_vec()
}

/// Enters that elements are not stored as they are.
pub(super) fn describe<E: Element, T: Element>(identity: &mut Identity) {
    if E::DTYPE != T::DTYPE {
        identity.value(format!("{}, stored as {}", E::DTYPE, T::DTYPE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every exponent, ties and what is next to them, subnormals, both zeros, infinities, NaN; with both signs.
    fn floats() -> Vec<f32> {
        let low =
            [0, 1, 0xfff, 0x1000, 0x1001, 0x2000, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0x18000, 0x7f_ffff];
        let bits = (0..=255_u32).flat_map(|exponent| low.map(|low| exponent << 23 | low));
        let bits: Vec<u32> = bits.collect();
        bits.iter().flat_map(|&bits| [bits, bits | 1 << 31]).map(f32::from_bits).collect()
    }

    #[test]
    fn floats_are_rounded_to_the_nearest_half_ties_to_even() {
        let floats = floats();
        let bytes: &[u8] = bytemuck::cast_slice(&floats);
        let narrowed = narrow::<f32, f16>(bytes);
        let expected: Vec<u8> = floats.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        assert!(narrowed == expected);
        let narrowed = narrow::<f32, bf16>(bytes);
        let expected: Vec<u8> = floats.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect();
        assert!(narrowed == expected);
        let half = |x: f32| narrow::<f32, f16>(bytemuck::bytes_of(&x)).to_vec();
        // The neighbours of 1 are a 2048th apart below, a 1024th above.
        assert_eq!(half(1. + 1. / 2048.), f16::ONE.to_le_bytes(), "a tie goes to the even one");
        assert_eq!(half(1. + 3. / 2048.), f16::from_bits(0x3c02).to_le_bytes(), "upwards too");
        assert_eq!(half(65_520.), f16::INFINITY.to_le_bytes());
        assert_eq!(half(65_519.), f16::MAX.to_le_bytes());
    }

    #[test]
    fn memory_of_any_alignment_is_rounded() {
        let mut bytes = vec![0; 1];
        bytes.extend([1.5_f32, -2.].map(f32::to_le_bytes).concat());
        let expected = [f16::from_f32(1.5), f16::from_f32(-2.)].map(f16::to_le_bytes).concat();
        // One of the four is aligned to nothing.
        for shift in 0..4 {
            let shifted = [vec![0; shift], bytes.clone()].concat();
            assert_eq!(narrow::<f32, f16>(&shifted[shift + 1..])[..], expected);
        }
    }

    #[test]
    fn what_is_stored_as_it_is_is_not_copied() {
        assert!(matches!(narrow::<f16, f16>(&[1, 2]), Cow::Borrowed([1, 2])));
    }
}
