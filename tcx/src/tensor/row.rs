//! The numbers of one sample in a `Vec`, for programs without a tensor library.

#![expect(unsafe_code, reason = "a reference to a `Vec` is one to what consists of a `Vec`")]

use bytemuck::TransparentWrapper;
use tcx_store::DType;

use super::{Element, TensorLike, TensorMemory};
use crate::{Error, ErrorKind, Result};

/// A tensor of one dimension. Not the `Vec` itself, which would make every `Vec` of numbers a batch in two ways.
#[derive(Debug)]
#[repr(transparent)]
pub struct Row<E>(pub Vec<E>);

// SAFETY: it is `repr(transparent)` over the `Vec`, and adds no promise to it.
unsafe impl<E> TransparentWrapper<Vec<E>> for Row<E> {}

impl<E: Element> TensorLike for Row<E> {
    const DTYPES: &'static [DType] = &[E::DTYPE];
    const RANK: Option<usize> = Some(1);

    fn from_memory(memory: TensorMemory, shape: &[usize]) -> Result<Self> {
        let row = memory.into_vec()?;
        if shape == [row.len()] {
            return Ok(Self(row));
        }
        Err(Error::new(
            ErrorKind::TensorLibrary,
            format!("{} elements have not the shape {shape:?}", row.len()),
        ))
    }

    fn shape(&self) -> Vec<usize> {
        vec![self.0.len()]
    }

    fn dtype(&self) -> Result<DType> {
        Ok(E::DTYPE)
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(use_bytes(bytemuck::cast_slice(&self.0)))
    }
}
