//! Memory for the rows of a leaf, which a lookup fills before a tensor is made of it.

#![expect(unsafe_code, reason = "the store writes memory that was not written before")]

use std::ops::Range;

use tcx_store::{DType, Destination, Lookup};

use super::{NewMemory, TensorLike, TensorMemory};
use crate::Result;

/// A dense leaf whose rows become one tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DenseLeaf {
    /// The number of the leaf.
    leaf: usize,
    /// The shape of a row.
    dims: &'static [usize],
    dtype: DType,
    /// Allocates the memory, of a dtype and a shape.
    allocate: fn(DType, &[usize]) -> Result<NewMemory>,
}

impl DenseLeaf {
    /// Leaf number `leaf`, whose rows become a `T`.
    pub(crate) fn of<T: TensorLike>(leaf: usize, dims: &'static [usize], dtype: DType) -> Self {
        Self { leaf, dims, dtype, allocate: T::allocate }
    }

    /// The number of the leaf.
    pub(crate) fn leaf(&self) -> usize {
        self.leaf
    }
}

/// New memory for the rows of a dense leaf, whose bytes may not have been written yet.
#[derive(Debug)]
pub(crate) struct NewRows {
    leaf: usize,
    memory: NewMemory,
    was_lent: bool,
}

impl NewRows {
    /// For `rows` rows.
    pub(crate) fn new(of: &DenseLeaf, rows: usize) -> Result<Self> {
        let shape: Vec<usize> = std::iter::once(&rows).chain(of.dims).copied().collect();
        Ok(Self { leaf: of.leaf, memory: (of.allocate)(of.dtype, &shape)?, was_lent: false })
    }

    /// The number of the leaf.
    pub(crate) fn leaf(&self) -> usize {
        self.leaf
    }

    /// Gives this memory to `look_up`, for the time of a call.
    pub(crate) fn lend<T>(all: &mut [Self], look_up: impl FnOnce(&mut [Destination<'_>]) -> T) -> T {
        let mut destinations = Vec::with_capacity(all.len());
        for Self { leaf, memory, was_lent } in all {
            *was_lent = true;
            destinations.push(Destination { leaf: *leaf, bytes: memory.bytes_mut() });
        }
        look_up(&mut destinations)
    }

    /// The memory with all the rows: those that `rows`, for which it was [lent](Self::lend), has not copied into it are now.
    pub(crate) fn with_rows(self, rows: &Lookup) -> TensorMemory {
        let Self { leaf, memory, was_lent } = self;
        // SAFETY: `copy_dense` writes every byte, and `copy_rest` those that the lookup has not written.
        unsafe {
            memory.written(|bytes| {
                // TensorMemory that was not lent may be at the address of memory that was and is gone.
                if was_lent {
                    rows.copy_rest(leaf, bytes);
                } else {
                    rows.copy_dense(leaf, bytes);
                }
            })
        }
    }
}

/// Some rows of leaf number `leaf`, one after the other in memory for a `T` of this dtype and shape, which has room for exactly
/// them.
pub(crate) fn rows<T: TensorLike>(
    rows: &Lookup,
    leaf: usize,
    positions: Range<usize>,
    shape: &[usize],
    dtype: DType,
) -> Result<TensorMemory> {
    let memory = T::allocate(dtype, shape)?;
    // SAFETY: `copy_rows` writes every byte.
    Ok(unsafe { memory.written(|bytes| rows.copy_rows(leaf, positions, bytes)) })
}

#[cfg(test)]
#[cfg(feature = "tch")]
#[path = "new_tests.rs"]
mod tests;
