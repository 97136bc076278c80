//! Tensors as bytes.

mod checksum;
mod raw;

pub(crate) use checksum::{Sample, checksum};
pub(crate) use raw::{NewTensor, TensorLeaf, fill_numbers, numbers, rows, with_bytes};

pub(crate) use crate::output::leaf::{check_dense, dense, first_line, kind_name};
