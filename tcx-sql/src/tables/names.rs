//! Columns of enums: dictionaries of the names of their variants.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringDictionaryBuilder};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use tcx_store::Variant;

/// The type of the column of an enum.
pub(super) fn data_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The column of an enum. A number that is not that of a variant is its own name.
pub(super) fn column(variants: &[Variant], rows: &[Option<&[u8]>]) -> ArrayRef {
    let mut names = StringDictionaryBuilder::<Int32Type>::new();
    for row in rows {
        let Some(number) = row.map(number) else {
            names.append_null();
            continue;
        };
        match variants.iter().find(|own| own.number == number) {
            Some(variant) => names.append_value(&variant.name),
            None => names.append_value(number.to_string()),
        }
    }
    Arc::new(names.finish())
}

/// The number in a row: as wide as the largest of the enum needs.
fn number(bytes: &[u8]) -> i32 {
    match *bytes {
        [byte] => byte.into(),
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}
