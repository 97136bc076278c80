//! Tensors of one shape that not every sample has.

use tch::Tensor;
use tcx_store::{Column, ColumnType};

use super::{Dense, TensorField, check, storage, with_elements};
use crate::Result;
use crate::identity::Identity;
use crate::output::typed::{Element, Shape};
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor;

impl<E: Element, S: Shape, T: Element> TensorField<Dense<E, S, T>> for Vec<Option<Tensor>> {
    const COLUMN: ColumnType = ColumnType::Optional(&<Tensor as TensorField<Dense<E, S, T>>>::COLUMN);

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let width = S::DIMS.iter().product::<usize>() * T::DTYPE.size();
        let mut values = Vec::with_capacity(self.len() * width);
        for (sample, tensor) in self.iter().enumerate() {
            if let Some(tensor) = tensor {
                check::<E>(tensor, S::DIMS, Some(sample), writer)?;
                with_elements(tensor, writer, |bytes| {
                    values.extend_from_slice(&storage::narrow::<E, T>(bytes));
                })?;
            } else {
                values.resize(values.len() + width, 0);
            }
        }
        writer.push(Column::dense(&values).optional(self.iter().map(Option::is_some)));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let size: Vec<i64> = S::DIMS.iter().map(|&dim| dim as i64).collect();
        let leaf = reader.next_leaf();
        let row = |row| {
            let tensor = tensor::rows(reader.rows(), leaf, row..row + 1, &size, storage::kind::<T>())?;
            storage::widen::<E, T>(tensor, reader.device())
        };
        (0..reader.rows().len())
            .map(|number| reader.is_present(leaf, number).then(|| row(number)).transpose())
            .collect()
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}
