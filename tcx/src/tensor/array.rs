//! Arrays of ndarray, whose type fixes the dtype, and for all but `ArrayD` the number of dimensions.

use ndarray::{Array, Dimension, IxDyn};
use tcx_store::DType;

use super::{Element, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

impl<E: Element, D: Dimension + 'static> TensorLike for Array<E, D> {
    const DTYPES: &'static [DType] = &[E::DTYPE];
    const RANK: Option<usize> = D::NDIM;

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        let array = Array::from_shape_vec(IxDyn(shape), memory.into_vec::<E>()?);
        array.and_then(Array::into_dimensionality).map_err(|error| {
            let message = format!("cannot make an array of the shape {shape:?}");
            Error::new(ErrorKind::TensorLibrary, message).with_source(error)
        })
    }

    fn shape(&self) -> Vec<usize> {
        // The method of the array itself, not of this trait.
        Array::shape(self).to_vec()
    }

    fn dtype(&self) -> Result<DType> {
        Ok(E::DTYPE)
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        if let Some(elements) = self.as_slice() {
            return Ok(use_bytes(bytemuck::cast_slice(elements)));
        }
        let elements: Vec<E> = self.iter().copied().collect();
        Ok(use_bytes(bytemuck::cast_slice(&elements)))
    }
}
