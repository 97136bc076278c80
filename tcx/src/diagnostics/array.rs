//! Arrays of ndarray that are no output.

use ndarray::{Array, Dimension};

use super::outputs::OutputField;
use crate::output::CacheableOutput;
use crate::output::typed::{Shape, Typed};
use crate::tensor::Element;

#[diagnostic::on_unimplemented(
    message = "a bare array has no compile-time shape, so it cannot be cached",
    label = "this array has no declared shape",
    note = "in a struct, annotate the field: `#[tensor(f32, [2048])]` (per-sample shape, without the batch dimension)",
    note = "elsewhere (returns, tuples), use `tcx::Typed<f32, D1<2048>, {T}>`"
)]
#[doc(hidden)]
pub trait HasShape<T> {}
impl<E: Element, S: Shape> HasShape<Typed<E, S>> for OutputField<'_> {}

#[doc(hidden)]
#[rustfmt::skip]
impl<E, D: Dimension> CacheableOutput for Array<E, D> where for<'a> OutputField<'a>: HasShape<Array<E, D>> {
    never_compiled!(CacheableOutput);
}
