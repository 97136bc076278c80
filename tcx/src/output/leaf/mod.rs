//! Between tensors and columns: an output tensor is compared with its declaration and copied into the bytes
//! of its rows; rows are gathered into one new tensor, or into one each where they differ.

mod optional;
mod ragged;
mod rows;
mod storage;
mod varying;

use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM};

use crate::identity::Identity;
use crate::output::typed::Shape;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{DenseLeaf, Element, Fixed, TensorLike, lend_bytes};
use crate::{ErrorKind, Result};

pub use ragged::Ragged;
pub use varying::Varying;

/// A field that `#[tensor(..)]` can store; `C` is the marker that says how.
#[diagnostic::on_unimplemented(
    message = "`#[tensor(..)]` cannot store a field of type `{Self}`",
    label = "not a tensor of this shape",
    note = "samples of one shape are a `Tensor`, and a `Vec<Option<Tensor>>` if not every sample has one; samples that differ in size, with `_` in the shape, are a `Vec<Tensor>`, a `Vec<Option<Tensor>>` or a `tcx::Ragged`",
    note = "remove `#[tensor(..)]` from fields that are not tensors"
)]
#[doc(hidden)]
pub trait TensorField<C>: Sized {
    /// The column.
    const COLUMN: ColumnType;

    /// What the type of the tensors fixes, and the dtype and the rank that the column needs of them.
    const FIXED: Option<(Fixed, DType, usize)>;

    /// Copies the rows into the columns.
    fn write(&self, writer: &mut ColumnWriter) -> Result<()>;

    /// Gathers the rows asked for.
    fn read(reader: &mut ColumnReader<'_>) -> Result<Self>;

    /// Enters what the column does not say: that it is stored as another dtype.
    fn describe(_: &mut Identity) {}
}

/// Marks tensors of one dtype and one per-sample shape, stored as `T`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Dense<E, S, T = E>(std::marker::PhantomData<(E, S, T)>);

// Of a type that is no tensor, the message of `TensorField` says more than one about `TensorLike`.
#[diagnostic::do_not_recommend]
impl<E: Element, S: Shape, T: Element, V: TensorLike> TensorField<Dense<E, S, T>> for V {
    const COLUMN: ColumnType = ColumnType::Dense { dtype: storage::of::<E, T>(), shape: S::DIMS };
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<V>(), E::DTYPE, S::DIMS.len() + 1));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        let shape: Vec<usize> = std::iter::once(writer.rows()).chain(S::DIMS.iter().copied()).collect();
        check::<E, V>(self, &shape, None, writer)?;
        let column = with_elements(self, writer, |bytes| Column::dense(&storage::narrow::<E, T>(bytes)))?;
        writer.push(column);
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaf = reader.next_leaf();
        let memory = reader.memory(DenseLeaf::of::<V>(leaf, S::DIMS, T::DTYPE))?;
        let shape: Vec<usize> = std::iter::once(reader.rows().len()).chain(S::DIMS.iter().copied()).collect();
        V::from_stored(memory, &shape, E::DTYPE, reader.device())
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

/// Compares a tensor with its declaration; `shape` has [`DYNAMIC_DIM`] where it may have any size. It may be that of one sample.
fn check<E: Element, V: TensorLike>(
    value: &V,
    shape: &[usize],
    sample: Option<usize>,
    writer: &ColumnWriter,
) -> Result<()> {
    let mismatch = |found: String| {
        let dim = |&dim: &usize| if dim == DYNAMIC_DIM { "_".to_owned() } else { dim.to_string() };
        let dims: Vec<_> = shape.iter().map(dim).collect();
        let of = sample.map_or_else(String::new, |sample| format!(" for sample {sample} of the batch"));
        writer.mismatch(format!("{} [{}]", E::DTYPE, dims.join(", ")), format!("{found}{of}"))
    };
    let dtype = value.dtype().map_err(|error| mismatch(error.to_string()))?;
    let size = value.shape();
    let fits = size.len() == shape.len()
        && size.iter().zip(shape).all(|(&found, &dim)| dim == DYNAMIC_DIM || found == dim);
    if dtype == E::DTYPE && fits { Ok(()) } else { Err(mismatch(format!("{dtype} {size:?}"))) }
}

/// The bytes of a tensor's elements in row-major order, given to `use_bytes` for the time of a call.
fn with_elements<V: TensorLike, R>(
    tensor: &V,
    writer: &ColumnWriter,
    use_bytes: impl FnOnce(&[u8]) -> R,
) -> Result<R> {
    if writer.refuses_gradients::<V>() && tensor.tracks_gradients() {
        let found = "one that does: a trainable tensor takes part";
        let error = writer.mismatch("a tensor that tracks no gradients", found);
        let error = error.of_kind(ErrorKind::ModuleViolation);
        return Err(error.with_remedy("hold it in `Frozen`, or detach the inputs"));
    }
    lend_bytes(tensor, use_bytes).map_err(|error| writer.mismatch("a dense tensor", error.to_string()))
}
