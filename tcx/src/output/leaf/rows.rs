//! A `Vec` of numbers for each sample, for programs without a tensor library.

use bytemuck::TransparentWrapper;
use tcx_store::{Column, ColumnType, DType};

use super::{Dense, TensorField, Varying, optional, storage};
use crate::Result;
use crate::identity::Identity;
use crate::output::typed::Shape;
use crate::output::{ColumnReader, ColumnWriter};
use crate::tensor::{Element, Fixed, Row};

impl<X: Element, E: Element, S: Shape, T: Element> TensorField<Dense<E, S, T>> for Vec<Vec<X>> {
    const COLUMN: ColumnType = ColumnType::Dense { dtype: storage::of::<E, T>(), shape: S::DIMS };
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<Row<X>>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let rows = self.iter().map(|row| Some(Row::wrap_ref(row)));
        let values = optional::values::<E, S, T, _>(rows, writer)?;
        writer.push(Column::dense(&values));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let leaf = reader.next_leaf();
        let row = |row| Ok(optional::value::<E, S, T, Row<X>>(reader, leaf, row)?.0);
        (0..reader.rows().len()).map(row).collect()
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

impl<X: Element, E: Element, S: Shape, T: Element> TensorField<Dense<E, S, T>> for Vec<Option<Vec<X>>> {
    const COLUMN: ColumnType =
        ColumnType::Optional(&ColumnType::Dense { dtype: storage::of::<E, T>(), shape: S::DIMS });
    const FIXED: Option<(Fixed, DType, usize)> = <Vec<Vec<X>> as TensorField<Dense<E, S, T>>>::FIXED;

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let rows = self.iter().map(|row| row.as_ref().map(Row::wrap_ref));
        let values = optional::values::<E, S, T, _>(rows, writer)?;
        writer.push(Column::dense(&values).optional(self.iter().map(Option::is_some)));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let rows = <Vec<Option<Row<X>>> as TensorField<Dense<E, S, T>>>::read(reader)?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.0)).collect())
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

impl<X: Element, E: Element, S: Shape, T: Element> TensorField<Varying<E, S, T>> for Vec<Vec<X>> {
    const COLUMN: ColumnType = Varying::<E, S, T>::COLUMN;
    const FIXED: Option<(Fixed, DType, usize)> = Some((Fixed::by::<Row<X>>(), E::DTYPE, S::DIMS.len()));

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let rows = self.iter().map(|row| Some(Row::wrap_ref(row)));
        let (values, sizes) = Varying::<E, S, T>::write(rows, writer)?;
        std::iter::once(values).chain(sizes).for_each(|column| writer.push(column));
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let rows = <Vec<Row<X>> as TensorField<Varying<E, S, T>>>::read(reader)?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}

impl<X: Element, E: Element, S: Shape, T: Element> TensorField<Varying<E, S, T>> for Vec<Option<Vec<X>>> {
    const COLUMN: ColumnType = ColumnType::Optional(&Varying::<E, S, T>::COLUMN);
    const FIXED: Option<(Fixed, DType, usize)> = <Vec<Vec<X>> as TensorField<Varying<E, S, T>>>::FIXED;

    fn write(&self, writer: &mut ColumnWriter) -> Result<()> {
        writer.check_rows(self.len())?;
        let rows = self.iter().map(|row| row.as_ref().map(Row::wrap_ref));
        let (values, sizes) = Varying::<E, S, T>::write(rows, writer)?;
        writer.push(values.optional(self.iter().map(Option::is_some)));
        if let Some(column) = sizes {
            writer.push(column);
        }
        Ok(())
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Self> {
        let rows = <Vec<Option<Row<X>>> as TensorField<Varying<E, S, T>>>::read(reader)?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.0)).collect())
    }

    fn describe(identity: &mut Identity) {
        storage::describe::<E, T>(identity);
    }
}
