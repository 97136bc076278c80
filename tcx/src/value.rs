//! What a `Vec` holds per sample: numbers, truth values, strings.

use half::{bf16, f16};
use tcx_store::{Column, ColumnType, Lookup};

use crate::Result;
use crate::tensor::numbers;
use crate::typed::Element;

/// A value that a `Vec` may hold for each sample of a batch.
#[diagnostic::on_unimplemented(
    message = "`Vec<{Self}>` cannot be cached",
    label = "`{Self}` is not a per-sample value tcx can store",
    note = "a `Vec` field holds one number, `bool` or `String` per sample"
)]
#[doc(hidden)]
pub trait SampleValue: Sized {
    /// The column.
    const COLUMN: ColumnType;

    /// The column of these rows.
    fn column(rows: &[Self]) -> Column;

    /// The rows asked for, of leaf number `leaf`.
    fn gather(rows: &Lookup, leaf: usize) -> Result<Vec<Self>>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl SampleValue for $number {
            const COLUMN: ColumnType = ColumnType::Dense { dtype: <$number as Element>::DTYPE, shape: &[] };

            fn column(rows: &[Self]) -> Column {
                Column::dense(bytemuck::cast_slice(rows))
            }

            fn gather(rows: &Lookup, leaf: usize) -> Result<Vec<Self>> {
                Ok(numbers(rows, leaf))
            }
        }
    )*};
}

numbers!(f16, bf16, f32, f64, i8, i16, i32, i64, u8);

impl SampleValue for bool {
    const COLUMN: ColumnType = ColumnType::Dense { dtype: bool::DTYPE, shape: &[] };

    fn column(rows: &[Self]) -> Column {
        Column::dense(&rows.iter().map(|&row| u8::from(row)).collect::<Vec<_>>())
    }

    fn gather(rows: &Lookup, leaf: usize) -> Result<Vec<Self>> {
        Ok(numbers::<u8>(rows, leaf).into_iter().map(|byte| byte != 0).collect())
    }
}

impl SampleValue for String {
    const COLUMN: ColumnType = ColumnType::Text;

    fn column(rows: &[Self]) -> Column {
        Column::text(rows)
    }

    fn gather(rows: &Lookup, leaf: usize) -> Result<Vec<Self>> {
        let row = |row| rows.text(leaf, row).map(str::to_owned).map_err(Into::into);
        (0..rows.len()).map(row).collect()
    }
}
