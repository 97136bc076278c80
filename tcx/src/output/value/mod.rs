//! What a `Vec` holds per sample: numbers, truth values, arrays of these, strings, bytes, the variants of an enum; and any
//! of these where not every sample has one.

mod array;
pub mod variants;

use tcx_store::{Column, ColumnType};

pub(crate) use array::Item;
pub use variants::Variants;

use crate::Result;
use crate::identity::Identity;
use crate::output::{ColumnReader, ColumnWriter};

/// A value that a `Vec` may hold for each sample of a batch.
#[diagnostic::on_unimplemented(
    message = "`Vec<{Self}>` cannot be cached",
    label = "`{Self}` is not a per-sample value tcx can store",
    note = "a `Vec` field holds one number, `bool` or `String` per sample, bytes (`Vec<Vec<u8>>`), an array of numbers as in `Vec<[f32; 4]>`, an enum without data that has `#[derive(CacheableOutput)]`, or an `Option` of one of these",
    note = "numbers whose count differs from sample to sample are tensors: `#[tensor(f32, [_])] scores: Vec<Tensor>`"
)]
#[doc(hidden)]
pub trait SampleValue: Sized {
    /// The column.
    const COLUMN: ColumnType;

    /// Copies the rows into the columns; there are as many as the writer expects.
    fn write(rows: &[Self], writer: &mut ColumnWriter);

    /// Gathers the rows asked for.
    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>>;

    /// Enters what the column does not say of the values' meaning.
    fn describe(_: &mut Identity) {}
}

/// A value that not every sample has to have.
#[diagnostic::on_unimplemented(
    message = "`Vec<Option<{Self}>>` cannot be cached",
    label = "`{Self}` is not a per-sample value that may be absent",
    note = "an optional value is a number, `bool`, `String`, bytes (`Vec<u8>`), an array of numbers, or an enum without data that has `#[derive(CacheableOutput)]`; a tensor needs `#[tensor(f32, [2048])]` on its field"
)]
#[doc(hidden)]
pub trait OptionalValue: SampleValue {
    /// The rows; those that are absent are zeros, or empty.
    fn column(rows: &[Option<Self>]) -> Column;

    /// Gathers the rows asked for.
    fn read_some(reader: &mut ColumnReader<'_>) -> Result<Vec<Option<Self>>>;
}

impl<T: OptionalValue> SampleValue for Option<T> {
    const COLUMN: ColumnType = ColumnType::Optional(&T::COLUMN);

    fn write(rows: &[Self], writer: &mut ColumnWriter) {
        writer.push(T::column(rows).optional(rows.iter().map(Option::is_some)));
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
        T::read_some(reader)
    }

    fn describe(identity: &mut Identity) {
        T::describe(identity);
    }
}

macro_rules! items {
    ($([$($parameter:tt)*] $item:ty),* $(,)?) => {$(
        impl<$($parameter)*> SampleValue for $item {
            const COLUMN: ColumnType = array::column::<Self>();

            fn write(rows: &[Self], writer: &mut ColumnWriter) {
                array::write(rows, writer);
            }

            fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
                Ok(array::read(reader))
            }
        }

        impl<$($parameter)*> OptionalValue for $item {
            fn column(rows: &[Option<Self>]) -> Column {
                array::some(rows)
            }

            fn read_some(reader: &mut ColumnReader<'_>) -> Result<Vec<Option<Self>>> {
                Ok(array::read_some(reader))
            }
        }
    )*};
}

items!([] half::f16, [] half::bf16, [] f32, [] f64, [] i8, [] i16, [] i32, [] i64, [] u8, [] bool);
items!([T: Item, const N: usize] [T; N]);

impl SampleValue for String {
    const COLUMN: ColumnType = ColumnType::Text;

    fn write(rows: &[Self], writer: &mut ColumnWriter) {
        writer.push(Column::text(rows));
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
        let leaf = reader.next_leaf();
        (0..reader.rows().len()).map(|row| text(reader, leaf, row)).collect()
    }
}

impl OptionalValue for String {
    fn column(rows: &[Option<Self>]) -> Column {
        Column::text(rows.iter().map(|row| row.as_deref().unwrap_or_default()))
    }

    fn read_some(reader: &mut ColumnReader<'_>) -> Result<Vec<Option<Self>>> {
        let leaf = reader.next_leaf();
        let row = |row| reader.is_present(leaf, row).then(|| text(reader, leaf, row)).transpose();
        (0..reader.rows().len()).map(row).collect()
    }
}

fn text(reader: &ColumnReader<'_>, leaf: usize, row: usize) -> Result<String> {
    Ok(reader.rows().text(leaf, row)?.to_owned())
}

impl SampleValue for Vec<u8> {
    const COLUMN: ColumnType = ColumnType::Bytes;

    fn write(rows: &[Self], writer: &mut ColumnWriter) {
        writer.push(bytes(rows.iter().map(Self::as_slice)));
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
        let leaf = reader.next_leaf();
        Ok((0..reader.rows().len()).map(|row| reader.rows().bytes(leaf, row).to_vec()).collect())
    }
}

impl OptionalValue for Vec<u8> {
    fn column(rows: &[Option<Self>]) -> Column {
        bytes(rows.iter().map(|row| row.as_deref().unwrap_or_default()))
    }

    fn read_some(reader: &mut ColumnReader<'_>) -> Result<Vec<Option<Self>>> {
        let leaf = reader.next_leaf();
        let row = |row| reader.is_present(leaf, row).then(|| reader.rows().bytes(leaf, row).to_vec());
        Ok((0..reader.rows().len()).map(row).collect())
    }
}

/// One byte string per row.
fn bytes<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Column {
    let (mut values, mut ends) = (Vec::new(), Vec::new());
    for row in rows {
        values.extend_from_slice(row);
        ends.push(values.len());
    }
    Column::varying(values, ends)
}
