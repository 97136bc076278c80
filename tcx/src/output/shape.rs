//! The shapes of columns, checked while the user's program is compiled.

use tcx_store::{ColumnType, DYNAMIC_DIM};

use crate::output::leaf::{Dense, Varying};
use crate::output::typed::Shape;

/// The rank of `D5`.
pub(crate) const MOST_DIMS: usize = 5;

/// The shape of a column, as its marker says.
pub trait ColumnShape {
    /// The sizes of the dimensions.
    const DIMS: &'static [usize];
}

impl<E, S: Shape, T> ColumnShape for Dense<E, S, T> {
    const DIMS: &'static [usize] = S::DIMS;
}

impl<E, S: Shape, T> ColumnShape for Varying<E, S, T> {
    const DIMS: &'static [usize] = S::DIMS;
}

/// Compiles only for a shape whose dimensions are all positive; the macros see to those that are literals.
pub const fn assert_column_shape<C: ColumnShape>() {
    check_shape(C::DIMS);
}

pub(crate) const fn check_column(column: &ColumnType) {
    match column {
        ColumnType::Dense { shape, .. } => check_shape(shape),
        ColumnType::Optional(column) => check_column(column),
        _ => {}
    }
}

const fn check_shape(dims: &[usize]) {
    assert!(dims.len() <= MOST_DIMS, "a sample has at most five dimensions");
    let mut elements: usize = 1;
    let mut i = 0;
    while i < dims.len() {
        assert!(dims[i] > 0, "a dimension must be at least 1");
        if dims[i] != DYNAMIC_DIM {
            elements = elements.checked_mul(dims[i]).expect("the shape has too many elements");
        }
        i += 1;
    }
}
