//! What a `Vec` holds per sample: numbers, truth values, arrays of these, strings, the variants of an enum.

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
    note = "a `Vec` field holds one number, `bool` or `String` per sample, an array of numbers as in `Vec<[f32; 4]>`, or an enum without data that has `#[derive(CacheableOutput)]`"
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

macro_rules! items {
    ($($item:ty),*) => {$(
        impl SampleValue for $item {
            const COLUMN: ColumnType = array::column::<Self>();

            fn write(rows: &[Self], writer: &mut ColumnWriter) {
                array::write(rows, writer);
            }

            fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
                Ok(array::read(reader))
            }
        }
    )*};
}

items!(half::f16, half::bf16, f32, f64, i8, i16, i32, i64, u8, bool);

impl<T: Item, const N: usize> SampleValue for [T; N] {
    const COLUMN: ColumnType = array::column::<Self>();

    fn write(rows: &[Self], writer: &mut ColumnWriter) {
        array::write(rows, writer);
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
        Ok(array::read(reader))
    }
}

impl SampleValue for String {
    const COLUMN: ColumnType = ColumnType::Text;

    fn write(rows: &[Self], writer: &mut ColumnWriter) {
        writer.push(Column::text(rows));
    }

    fn read(reader: &mut ColumnReader<'_>) -> Result<Vec<Self>> {
        let leaf = reader.next_leaf();
        let row = |row| reader.rows().text(leaf, row).map(str::to_owned).map_err(Into::into);
        (0..reader.rows().len()).map(row).collect()
    }
}
