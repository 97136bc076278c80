//! Tensors whose dtype and per-sample shape are part of their type.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::tensor::{AsTensor, DefaultTensor, TensorLike};

mod sealed {
    pub trait Sealed {}
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
pub struct Typed<E, S, T = DefaultTensor> {
    tensor: T,
    declared: PhantomData<fn() -> (E, S)>,
}

impl<E, S, T> Typed<E, S, T> {
    /// The tensor.
    pub fn into_inner(self) -> T {
        self.tensor
    }
}

impl<E, S, T> From<T> for Typed<E, S, T> {
    fn from(tensor: T) -> Self {
        Self { tensor, declared: PhantomData }
    }
}

#[cfg(feature = "tch")]
impl<E, S> From<Typed<E, S>> for tch::Tensor {
    fn from(typed: Typed<E, S>) -> Self {
        typed.tensor
    }
}

impl<E, S, T> AsRef<T> for Typed<E, S, T> {
    fn as_ref(&self) -> &T {
        &self.tensor
    }
}

impl<E, S, T> Deref for Typed<E, S, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.tensor
    }
}

impl<E, S, T: TensorLike> AsTensor for Typed<E, S, T> {
    type Tensor = T;

    fn as_tensor(&self) -> &T {
        &self.tensor
    }
}

impl<E, S, T: fmt::Debug> fmt::Debug for Typed<E, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.tensor, f)
    }
}
