//! Tensors whose dtype and per-sample shape are part of their type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use half::{bf16, f16};
use tch::{Kind, Tensor};
use tcx_store::DType;

mod sealed {
    pub trait Sealed {}
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
    /// The dtype as libtorch knows it.
    #[doc(hidden)]
    const KIND: Kind;
}

/// The per-sample shape of a tensor, without the batch dimension: [`D0`] to [`D5`].
///
/// ```
/// use tcx::{D0, D2, Shape, Typed};
///
/// fn floats<S: Shape>(tensor: tch::Tensor) -> Typed<f32, S> {
///     tensor.into()
/// }
/// let zeros = |size: &[i64]| tch::Tensor::zeros(size, tch::kind::FLOAT_CPU);
/// assert_eq!(floats::<D0>(zeros(&[3])).size(), [3]);
/// assert_eq!(floats::<D2<77, 768>>(zeros(&[3, 77, 768])).size(), [3, 77, 768]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    label = "not a shape",
    note = "a shape is `tcx::D0` (one number per sample), `tcx::D1<2048>`, `tcx::D2<77, 768>`, … up to `tcx::D5`; the batch dimension is left out"
)]
pub trait Shape: sealed::Sealed + 'static {
    /// The sizes of the dimensions.
    #[doc(hidden)]
    const DIMS: &'static [usize];
}

macro_rules! elements {
    ($($element:ty => $dtype:ident $kind:ident),* $(,)?) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DTYPE: DType = DType::$dtype;
            const KIND: Kind = Kind::$kind;
        }
    )*};
}

elements! {
    f16 => F16 Half,
    bf16 => BF16 BFloat16,
    f32 => F32 Float,
    f64 => F64 Double,
    i8 => I8 Int8,
    i16 => I16 Int16,
    i32 => I32 Int,
    i64 => I64 Int64,
    u8 => U8 Uint8,
    bool => Bool Bool,
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident $($dim:ident)*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<$(const $dim: usize),*>;
        impl<$(const $dim: usize),*> sealed::Sealed for $name<$($dim),*> {}
        impl<$(const $dim: usize),*> Shape for $name<$($dim),*> {
            const DIMS: &'static [usize] = &[$($dim),*];
        }
    )*};
}

shapes! {
    /// One number per sample.
    D0;
    /// A vector per sample.
    D1 A;
    /// A matrix per sample.
    D2 A B;
    /// Three dimensions per sample: an image, say.
    D3 A B C;
    /// Four dimensions per sample.
    D4 A B C D;
    /// Five dimensions per sample.
    D5 A B C D E;
}

/// A batched tensor with a declared dtype and per-sample shape, for tuples and direct returns, which have no field for
/// `#[tensor(..)]`.
///
/// [`into`](Into::into) makes it from a tensor, and it derefs to that tensor. The tensor is compared with the declaration when
/// its rows enter the cache, as the fields of a struct are.
///
/// ```
/// use tcx::{D1, Typed};
///
/// let pooled: Typed<f32, D1<2048>> = tch::Tensor::zeros([8, 2048], tch::kind::FLOAT_CPU).into();
/// assert_eq!(pooled.size(), [8, 2048]);
/// let plain: tch::Tensor = pooled.into();
/// ```
///
/// A dimension is at least 1; a cache whose module returns anything else does not compile:
///
/// ```compile_fail
/// use tcx::{Cache, D1, Extractor, Typed, cached_module};
///
/// #[cached_module(id = "nothing_v1")]
/// struct Nothing;
///
/// impl Extractor for Nothing {
///     type Input = tch::Tensor;
///     type Output = Typed<f32, D1<0>>;
///
///     fn forward(&self, x: &tch::Tensor) -> tcx::Result<Self::Output> {
///         Ok(x.shallow_clone().into())
///     }
/// }
///
/// Cache::open("cache")?.module(Nothing)?;
/// # Ok::<(), tcx::Error>(())
/// ```
pub struct Typed<E, S> {
    tensor: Tensor,
    declared: PhantomData<fn() -> (E, S)>,
}

impl<E, S> From<Tensor> for Typed<E, S> {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, declared: PhantomData }
    }
}

impl<E, S> From<Typed<E, S>> for Tensor {
    fn from(typed: Typed<E, S>) -> Self {
        typed.tensor
    }
}

impl<E, S> AsRef<Tensor> for Typed<E, S> {
    fn as_ref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<E, S> Deref for Typed<E, S> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<E, S> fmt::Debug for Typed<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tensor, f)
    }
}
