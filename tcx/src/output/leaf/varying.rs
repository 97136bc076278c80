//! Tensors whose shape differs from sample to sample: one for each.

use std::marker::PhantomData;

use tcx_store::{Column, ColumnType, DType, DYNAMIC_DIM};

use super::{TensorField, check, storage, with_elements};
use crate::Result;
use crate::identity::Identity;
use crate::output::typed::Shape;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{self, Element, Fixed, TensorLike};

/// Marks tensors of one dtype whose shape has dimensions of [`DYNAMIC_DIM`] size, stored as `T`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Varying<E, S, T = E>(PhantomData<(E, S, T)>);

impl<E: Element, S: Shape, T: Element> Varying<E, S, T> {
    pub(super) const COLUMN: ColumnType = ColumnType::Ragged { dtype: storage::of::<E, T>(), shape: S::DIMS };

    /// How many dimensions differ. If more than one does, their sizes have a column of their own.
    fn varying() -> usize {
        S::DIMS.iter().filter(|&&dim| dim == DYNAMIC_DIM).count()
    }

    pub(super) fn write<'a, V: TensorLike>(
        tensors: impl Iterator<Item = Option<&'a V>>,
        writer: &mut ColumnWriter,
    ) -> Result<(Column, Option<Column>)> {
        let (mut values, mut ends, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for (sample, tensor) in tensors.enumerate() {
            if let Some(tensor) = tensor {
                check::<E, V>(tensor, S::DIMS, Some(sample), writer)?;
                with_elements(tensor, writer, |bytes| {
                    values.extend_from_slice(&storage::narrow::<E, T>(bytes));
                })?;
                let own = tensor.shape().into_iter().zip(S::DIMS).filter(|(_, dim)| **dim == DYNAMIC_DIM);
                sizes.extend(own.flat_map(|(size, _)| (size as i64).to_le_bytes()));
            } else {
                sizes.resize(sizes.len() + Self::varying() * size_of::<i64>(), 0);
            }
            ends.push(values.len());
        }
        writer.looked_at::<E>(values.is_empty());
        let sizes = (Self::varying() > 1).then(|| Column::dense(&sizes));
        Ok((Column::varying(values, ends), sizes))
    }

    /// The numbers of the leaves: that of the elements, and that of the sizes.
    fn leaves(reader: &mut ColumnReader<'_>) -> (usize, Option<usize>) {
        let leaf = reader.next_leaf();
        (leaf, (Self::varying() > 1).then(|| reader.next_leaf()))
    }

    fn read<V: TensorLike>(
        reader: &ColumnReader<'_>,
        leaves: (usize, Option<usize>),
        row: usize,
    ) -> Result<V> {
        let shape = Self::shape(reader, leaves, row)?;
        let memory = tensor::rows::<V>(reader.rows(), leaves.0, row..row + 1, &shape, T::DTYPE)?;
        V::from_stored(memory, &shape, E::DTYPE, reader.device())
    }

    /// The shape of a row, which is as large as its elements are many.
    fn shape(
        reader: &ColumnReader<'_>,
        (leaf, sizes): (usize, Option<usize>),
        row: usize,
    ) -> Result<Vec<usize>> {
        let elements = reader.rows().bytes(leaf, row).len() / T::DTYPE.size();
        let known: usize = S::DIMS.iter().filter(|&&dim| dim != DYNAMIC_DIM).product();
        let sizes: Vec<i64> = match sizes {
            Some(sizes) => {
                let (chunks, _) = reader.rows().bytes(sizes, row).as_chunks();
                chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect()
            }
            None => vec![(elements / known) as i64],
        };
        let mut own = sizes.iter().copied();
        let dim = |&dim: &usize| if dim == DYNAMIC_DIM { own.next().unwrap_or(-1) } else { dim as i64 };
        let size: Vec<i64> = S::DIMS.iter().map(dim).collect();
        let whole = size.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim.try_into().ok()?));
        if whole == Some(elements) {
            return Ok(size.into_iter().map(|dim| dim as usize).collect());
        }
        Err(reader.mismatch(
            leaf,
            format!("a tensor of shape {size:?}"),
            format!("{elements} elements on disk"),
        ))
    }
}

// Of a type that is no tensor, the message of `TensorField` says more than one about `TensorLike`.
#[diagnostic::do_not_recommend]
impl<E: Element, S: Shape, T: Element, V: TensorLike> TensorField<Varying<E, S, T>> for Vec<V> {
    const COLUMN: ColumnType = Varying::<E, S, T>::COLUMN;
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<V>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let (values, sizes) = Varying::<E, S, T>::write(self.iter().map(Some), writer)?;
        std::iter::once(values).chain(sizes).for_each(|column| writer.push(column));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaves = Varying::<E, S, T>::leaves(reader);
        (0..reader.rows().len()).map(|row| Varying::<E, S, T>::read(reader, leaves, row)).collect()
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

impl<E: Element, S: Shape, T: Element, V: TensorLike> TensorField<Varying<E, S, T>> for Vec<Option<V>> {
    const COLUMN: ColumnType = ColumnType::Optional(&Varying::<E, S, T>::COLUMN);
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<V>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let (values, sizes) = Varying::<E, S, T>::write(self.iter().map(Option::as_ref), writer)?;
        writer.push(values.optional(self.iter().map(Option::is_some)));
        if let Some(column) = sizes {
            writer.push(column);
        }
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaves = Varying::<E, S, T>::leaves(reader);
        let read = |row| Varying::<E, S, T>::read(reader, leaves, row);
        (0..reader.rows().len())
            .map(|row| reader.is_present(leaves.0, row).then(|| read(row)).transpose())
            .collect()
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}
