//! Tensors that differ in their first dimension, joined along it.

use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM};

use super::{TensorField, Varying, check, storage, with_elements};
use crate::Result;
use crate::identity::Identity;
use crate::output::typed::Shape;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{self, DefaultTensor, Element, Fixed, TensorLike, assert_fits};

/// The samples of a batch, which differ in their first dimension, joined along it into one tensor. Use it instead of
/// `Vec<Tensor>` for a field with a shape like `[_, 768]`; both read the same rows.
///
/// ```
/// use tch::Tensor;
/// use tcx::{CacheableOutput, Ragged};
///
/// #[derive(CacheableOutput)]
/// struct Features {
///     #[tensor(f32, [_, 2])]
///     tokens: Ragged,
/// }
///
/// // A sample of two tokens, one of none, one of one.
/// let values = Tensor::from_slice(&[1f32, 2., 3., 4., 5., 6.]).view([3, 2]);
/// let tokens = Ragged { values, offsets: Tensor::from_slice(&[0i64, 2, 2, 3]) };
/// # let _ = Features { tokens };
/// ```
///
/// `V` is the type of the values, and `O` that of the offsets, for a library whose types fix their elements:
/// `Ragged<Array2<f32>, Array1<i64>>`.
#[derive(Debug)]
pub struct Ragged<V = DefaultTensor, O = V> {
    /// The samples, one after the other: `[sum of their sizes, 768]`.
    pub values: V,
    /// Where each sample begins in `values`, and where the last one ends: an `i64` tensor with one more element than there are
    /// samples.
    pub offsets: O,
}

impl<E: Element, S: Shape, T: Element, V: TensorLike, O: TensorLike> TensorField<Varying<E, S, T>>
    for Ragged<V, O>
{
    const COLUMN: ColumnType = {
        check_first(S::DIMS);
        assert_fits(Fixed::by::<O>(), DType::I64, 1);
        Varying::<E, S, T>::COLUMN
    };
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<V>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        check::<E, V>(&self.values, S::DIMS, None, writer)?;
        let ends = self.ends(writer)?;
        let width = S::DIMS.iter().skip(1).product::<usize>() * T::DTYPE.size();
        let values =
            with_elements(&self.values, writer, |bytes| storage::narrow::<E, T>(bytes).into_owned())?;
        writer.looked_at::<E>(values.is_empty());
        writer.push(Column::varying(values, ends.into_iter().map(|end| end * width)));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaf = reader.next_leaf();
        let (rows, count) = (reader.rows(), reader.rows().len());
        let width = S::DIMS.iter().skip(1).product::<usize>() * T::DTYPE.size();
        let mut offsets = vec![0_i64];
        for row in 0..count {
            let bytes = rows.bytes(leaf, row).len();
            if !bytes.is_multiple_of(width) {
                let found = format!("{bytes} bytes on disk");
                return Err(reader.mismatch(leaf, format!("a multiple of {width} bytes"), found));
            }
            offsets.push(offsets[row] + (bytes / width) as i64);
        }
        let mut shape = S::DIMS.to_vec();
        shape[0] = offsets[count] as usize;
        let values = tensor::rows::<V>(rows, leaf, 0..count, &shape, T::DTYPE)?;
        let values = V::from_stored(values, &shape, E::DTYPE, reader.device())?;
        let offsets = O::from_stored(offsets.into(), &[count + 1], DType::I64, reader.device())?;
        Ok(Self { values, offsets })
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

impl<V: TensorLike, O: TensorLike> Ragged<V, O> {
    /// Where each sample ends in `values`, after comparing the offsets with the samples and with them.
    fn ends(&self, writer: &ColumnWriter) -> Result<Vec<usize>> {
        let Self { values, offsets } = self;
        let samples = writer.rows();
        let total = values.shape()[0] as i64;
        let mismatch = |found: String| {
            let expected = format!("offsets: i64 [{}], ascending from 0 to {total}", samples + 1);
            writer.mismatch(expected, format!("offsets: {found}"))
        };
        let dtype = offsets.dtype().map_err(|error| mismatch(error.to_string()))?;
        let size = offsets.shape();
        if dtype != DType::I64 || size != [samples + 1] {
            return Err(mismatch(format!("{dtype} {size:?}")));
        }
        let offsets: Vec<i64> = with_elements(offsets, writer, |bytes| {
            bytes.as_chunks().0.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()
        })?;
        if offsets[0] != 0 || offsets[samples] != total || !offsets.is_sorted() {
            let shown = &offsets[..offsets.len().min(8)];
            let more = if shown.len() < offsets.len() {
                format!(" … {}", offsets[samples])
            } else {
                String::new()
            };
            return Err(mismatch(format!("{shown:?}{more}")));
        }
        Ok(offsets[1..].iter().map(|&end| end as usize).collect())
    }
}

/// The macros see to it where they see the type.
const fn check_first(dims: &[usize]) {
    let mut i = 0;
    while i < dims.len() {
        assert!(
            (dims[i] == DYNAMIC_DIM) == (i == 0),
            "a `Ragged` differs in its first dimension only: `[_, 768]`"
        );
        i += 1;
    }
}
