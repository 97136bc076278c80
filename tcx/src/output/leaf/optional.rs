//! Tensors of one shape that not every sample has.

use tcx_store::{Column, ColumnType, DType};

use super::{Dense, TensorField, check, storage, with_elements};
use crate::Result;
use crate::identity::Identity;
use crate::output::typed::Shape;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{self, Element, Fixed, TensorLike};

impl<E: Element, S: Shape, T: Element, V: TensorLike> TensorField<Dense<E, S, T>> for Vec<Option<V>> {
    const COLUMN: ColumnType = ColumnType::Optional(&<V as TensorField<Dense<E, S, T>>>::COLUMN);
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<V>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let values = values::<E, S, T, V>(self.iter().map(Option::as_ref), writer)?;
        writer.push(Column::dense(&values).optional(self.iter().map(Option::is_some)));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaf = reader.next_leaf();
        let row = |row| value::<E, S, T, V>(reader, leaf, row);
        (0..reader.rows().len())
            .map(|number| reader.is_present(leaf, number).then(|| row(number)).transpose())
            .collect()
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

/// The elements of the samples, one after the other; zeros for those that have none.
pub(super) fn values<'a, E: Element, S: Shape, T: Element, V: TensorLike>(
    samples: impl Iterator<Item = Option<&'a V>>,
    writer: &mut ColumnWriter,
) -> Result<Vec<u8>> {
    let width = S::DIMS.iter().product::<usize>() * T::DTYPE.size();
    let mut values = Vec::with_capacity(writer.rows() * width);
    let mut is_unseen = true;
    for (sample, tensor) in samples.enumerate() {
        if let Some(tensor) = tensor {
            is_unseen = false;
            check::<E, V>(tensor, S::DIMS, Some(sample), writer)?;
            with_elements(tensor, writer, |bytes| {
                values.extend_from_slice(&storage::narrow::<E, T>(bytes));
            })?;
        } else {
            values.resize(values.len() + width, 0);
        }
    }
    writer.looked_at::<E>(is_unseen);
    Ok(values)
}

/// One row of a leaf.
pub(super) fn value<E: Element, S: Shape, T: Element, V: TensorLike>(
    reader: &ColumnReader<'_>,
    leaf: usize,
    row: usize,
) -> Result<V> {
    let memory = tensor::rows::<V>(reader.rows(), leaf, row..row + 1, S::DIMS, T::DTYPE)?;
    V::from_stored(memory, S::DIMS, E::DTYPE, reader.device())
}
