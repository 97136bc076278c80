//! The types of elements.

use half::{bf16, f16};
use tcx_store::DType;

mod sealed {
    /// Without padding, so that elements are bytes.
    pub trait Sealed: bytemuck::NoUninit {}
}

/// The type of a tensor's elements: [`f16`](crate::f16), [`bf16`](crate::bf16), `f32`, `f64`, `i8`,
/// `i16`, `i32`, `i64`, `u8` or `bool`.
///
/// ```
/// use tcx::{D1, Element, Typed, bf16};
///
/// fn vectors<E: Element>(tensor: tch::Tensor) -> Typed<E, D1<2>> {
///     tensor.into()
/// }
/// let zeros = tch::Tensor::zeros([3, 2], (tch::Kind::BFloat16, tch::Device::Cpu));
/// assert_eq!(vectors::<bf16>(zeros).size(), [3, 2]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the dtype of a tensor",
    label = "not a dtype",
    note = "a dtype is one of `tcx::f16`, `tcx::bf16`, `f32`, `f64`, `i8`, `i16`, `i32`, `i64`, `u8`, `bool`"
)]
pub trait Element: sealed::Sealed + Copy + 'static {
    /// The dtype as the store knows it.
    #[doc(hidden)]
    const DTYPE: DType;
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DTYPE: DType = DType::$dtype;
        }
        // TensorMemory for a dtype is memory for its elements.
        const _: () = assert!(size_of::<$element>() == DType::$dtype.size());
    )*};
}

elements! {
    f16 => F16,
    bf16 => BF16,
    f32 => F32,
    f64 => F64,
    i8 => I8,
    i16 => I16,
    i32 => I32,
    i64 => I64,
    u8 => U8,
    bool => Bool,
}

/// The alignment of elements of a dtype.
pub(crate) const fn align(dtype: DType) -> usize {
    match dtype {
        DType::F16 | DType::BF16 | DType::I16 => align_of::<i16>(),
        DType::F32 => align_of::<f32>(),
        DType::I32 => align_of::<i32>(),
        DType::F64 => align_of::<f64>(),
        DType::I64 => align_of::<i64>(),
        // One byte each; no other dtype is an `Element`.
        _ => 1,
    }
}
