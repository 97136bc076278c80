//! Arrays of ndarray that are no output.

use ndarray::{Array, Dimension};

use super::outputs::{HasDtypeAndShape, OutputField};
use crate::output::CacheableOutput;

#[doc(hidden)]
#[rustfmt::skip]
impl<E, D: Dimension> CacheableOutput for Array<E, D> where for<'a> OutputField<'a>: HasDtypeAndShape<Array<E, D>> {
    never_compiled!(CacheableOutput);
}
