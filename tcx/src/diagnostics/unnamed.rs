//! Tensors that name no type: without the feature `tch` there is no default.

use tcx_store::{ColumnType, DType};

use super::outputs::OutputField;
use crate::Result;
use crate::output::leaf::TensorField;
use crate::output::part::never_compiled;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{DefaultTensor, Fixed, TensorLike};

#[diagnostic::on_unimplemented(
    message = "this tensor names no type, and without the feature `tch` there is no default",
    label = "of which library?",
    note = "name the type of the field: `pooled: tensor(f32, [512]) as ndarray::Array2<f32>`, or `tokens: tensor(f32, [_, 8]) as Vec<ndarray::Array2<f32>>`"
)]
#[doc(hidden)]
pub trait NamesItsLibrary<T> {}
impl<T: TensorLike> NamesItsLibrary<T> for OutputField<'_> {}

/// The body of an impl whose condition never holds.
macro_rules! never_stored {
    () => {
        const COLUMN: ColumnType = ColumnType::Struct(&[]);
        const FIXED: Option<(Fixed, DType, usize)> = None;

        fn write(&self, _: &mut ColumnWriter) -> Result<()> {
            never_compiled()
        }

        fn read(_: &mut ColumnReader<'_>) -> Result<Self> {
            never_compiled()
        }
    };
}

#[doc(hidden)]
#[rustfmt::skip]
impl<C> TensorField<C> for DefaultTensor where for<'a> OutputField<'a>: NamesItsLibrary<DefaultTensor> {
    never_stored!();
}
#[doc(hidden)]
#[rustfmt::skip]
impl<C> TensorField<C> for Vec<DefaultTensor> where for<'a> OutputField<'a>: NamesItsLibrary<DefaultTensor> {
    never_stored!();
}
