//! Between tensors and columns: an output tensor is compared with its declaration and copied into the bytes
//! of its rows; rows are gathered into one new tensor.

mod raw;

use tch::{Device, Kind, TchError, Tensor};
use tcx_store::{Column, ColumnType, DType};

use crate::Result;
use crate::output::{ColumnReader, ColumnWriter};
use crate::typed::{Element, Shape};

pub(crate) use raw::{fill_numbers, numbers, with_bytes};

const _: () = assert!(cfg!(target_endian = "little"), "tensors enter the cache as little-endian bytes");

/// A field that `#[tensor(..)]` can store; `C` is the marker that says how.
#[diagnostic::on_unimplemented(
    message = "`#[tensor(..)]` cannot store a field of type `{Self}`",
    label = "expected `Tensor`",
    note = "remove `#[tensor(..)]` from fields that are not tensors"
)]
#[doc(hidden)]
pub trait TensorField<C>: Sized {
    /// The column.
    const COLUMN: ColumnType;

    /// Copies the rows into the columns.
    fn write(&self, writer: &mut ColumnWriter) -> Result<()>;

    /// Gathers the rows asked for.
    fn read(reader: &mut ColumnReader<'_>) -> Result<Self>;
}

/// Marks tensors of one dtype and one per-sample shape.
#[doc(hidden)]
#[derive(Debug)]
pub struct Dense<E, S>(std::marker::PhantomData<(E, S)>);

impl<E: Element, S: Shape> TensorField<Dense<E, S>> for Tensor {
    const COLUMN: ColumnType = ColumnType::Dense { dtype: E::DTYPE, shape: S::DIMS };

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        check::<E, S>(self, writer)?;
        if writer.refuses_gradients() && self.requires_grad() {
            let found = "one that does: a trainable tensor takes part";
            let error = writer.mismatch("a tensor that tracks no gradients", found);
            return Err(error.with_remedy("hold it in `Frozen`, or detach the inputs"));
        }
        let dense = dense(self).map_err(|error| writer.mismatch("a dense tensor", error))?;
        let column = raw::with_bytes(&dense, Column::dense)?;
        writer.push(column);
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let mut size = vec![reader.rows().len() as i64];
        size.extend(S::DIMS.iter().map(|&dim| dim as i64));
        let leaf = reader.next_leaf();
        // A byte of a bool that is neither 0 nor 1 would be undefined behaviour in libtorch, whoever wrote
        // it into the file; so its bytes are read as such, and compared.
        let tensor = match E::KIND {
            Kind::Bool => raw::tensor(reader.rows(), leaf, &size, Kind::Uint8)?.f_ne(0)?,
            kind => raw::tensor(reader.rows(), leaf, &size, kind)?,
        };
        Ok(tensor.f_to_device(reader.device())?)
    }
}

/// Compares a tensor with its declaration.
fn check<E: Element, S: Shape>(value: &Tensor, writer: &ColumnWriter) -> Result<()> {
    let declared = || {
        let dims = S::DIMS.iter().map(ToString::to_string);
        let dims: Vec<_> = std::iter::once(writer.rows().to_string()).chain(dims).collect();
        format!("{} [{}]", E::DTYPE, dims.join(", "))
    };
    if !value.defined() {
        return Err(writer.mismatch(declared(), "an undefined tensor"));
    }
    let (kind, size) = (value.f_kind(), value.size());
    let fits = size.len() == S::DIMS.len() + 1
        && size.first() == Some(&(writer.rows() as i64))
        && size.iter().skip(1).zip(S::DIMS).all(|(&found, &dim)| found == dim as i64);
    match kind {
        Ok(kind) if kind == E::KIND && fits => Ok(()),
        Ok(kind) => Err(writer.mismatch(declared(), format!("{} {size:?}", kind_name(kind)))),
        Err(_) => Err(writer.mismatch(declared(), format!("a dtype unknown to tch, {size:?}"))),
    }
}

/// The dtype as it is written in `#[tensor(..)]`, or libtorch's name if it cannot be written there.
pub(crate) fn kind_name(kind: Kind) -> String {
    let dtype = match kind {
        Kind::Half => DType::F16,
        Kind::BFloat16 => DType::BF16,
        Kind::Float => DType::F32,
        Kind::Double => DType::F64,
        Kind::Int8 => DType::I8,
        Kind::Int16 => DType::I16,
        Kind::Int => DType::I32,
        Kind::Int64 => DType::I64,
        Kind::Uint8 => DType::U8,
        Kind::Bool => DType::Bool,
        other => return format!("{other:?}"),
    };
    dtype.name().to_owned()
}

/// The same values as a contiguous tensor on the CPU, with nothing lazy left in it. Copies only what is not
/// like that yet.
///
/// # Errors
///
/// What the tensor is instead.
pub(crate) fn dense(tensor: &Tensor) -> Result<Tensor, String> {
    const OTHER: &str = "a sparse or MKL-DNN layout: call `to_dense` in `forward`";
    if tensor.is_sparse() || tensor.is_mkldnn() {
        return Err(OTHER.to_owned());
    }
    plain(tensor).map_err(|error| {
        let compressed = tensor.f_crow_indices().is_ok() || tensor.f_ccol_indices().is_ok();
        if compressed { OTHER.to_owned() } else { first_line(&error) }
    })
}

fn plain(tensor: &Tensor) -> Result<Tensor, TchError> {
    // `contiguous` alone would leave the bits that say "conjugate" or "negate when read".
    let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?;
    let tensor = tensor.f_resolve_conj()?.f_resolve_neg()?.f_contiguous()?;
    match tensor.f_kind()? {
        // A view of bytes as bools may hold any byte; a stored one is 0 or 1.
        Kind::Bool => tensor.f_view_dtype(Kind::Uint8)?.f_ne(0),
        _ => Ok(tensor),
    }
}

/// What libtorch says; the lines after the first are a backtrace of C++.
pub(crate) fn first_line(error: &TchError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
