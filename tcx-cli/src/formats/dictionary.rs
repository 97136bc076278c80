//! Columns of enums: dictionaries of the names of their variants.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int16Array, Int32Array, StringArray, UInt8Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};
use tcx_store::{DType, Leaf, LeafKind, Spec};

use crate::failure::{Code, Failure, Result};
use crate::formats::columns::failed;
use crate::text::values::{Number, numbers};
use crate::text::variants::Variants;

/// The type of the column of an enum.
pub(crate) fn data_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The column of an enum. Every batch has the same dictionary, as an Arrow file requires.
///
/// # Errors
///
/// A number is not that of a variant: then a name would be wrong.
pub(crate) fn column(leaf: &Leaf, variants: &Variants, rows: &[Option<&[u8]>]) -> Result<ArrayRef> {
    let position = |row: Option<&[u8]>| row.map(|bytes| name_position(leaf, variants, bytes)).transpose();
    let keys = rows.iter().copied().map(position).collect::<Result<Vec<_>>>()?;
    let keys: Int32Array = keys.into_iter().map(|key| key.map(|key| key as i32)).collect();
    let names = Arc::new(StringArray::from_iter_values(variants.names()));
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(keys, names).map_err(|error| failed(&error))?))
}

fn name_position(leaf: &Leaf, variants: &Variants, bytes: &[u8]) -> Result<usize> {
    let number = number(leaf, bytes);
    number.and_then(|number| variants.position(number)).ok_or_else(|| no_variant(leaf, number))
}

/// The number in a row of an enum.
pub(crate) fn number(leaf: &Leaf, bytes: &[u8]) -> Option<Number> {
    let LeafKind::Dense { dtype, .. } = &leaf.kind else { return None };
    numbers(*dtype, bytes).first().copied()
}

/// A number without a name.
pub(crate) fn no_variant(leaf: &Leaf, number: Option<Number>) -> Failure {
    let number = number.map_or_else(|| "nothing".to_owned(), |number| number.to_string());
    let name = &leaf.name;
    let message = format!(
        "the output `{name}` has a row with {number}, which is the number of no variant; leave it out with --fields, or export to npy"
    );
    Failure::new(Code::Unfit, message)
}

/// The numbers of a column of names, as other programs write an enum; columns of all other outputs as they are.
pub(crate) fn numbered(spec: &Spec, number: usize, array: &ArrayRef) -> Result<ArrayRef, String> {
    let leaf = &spec.leaves()[number];
    let (Some(variants), LeafKind::Dense { dtype, .. }) = (Variants::of(spec, number), &leaf.kind) else {
        return Ok(array.clone());
    };
    let is_text = |kind: &DataType| matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match array.data_type() {
        kind if is_text(kind) => {}
        DataType::Dictionary(_, values) if is_text(values) => {}
        _ => return Ok(array.clone()),
    }
    let texts = cast(array, &DataType::Utf8).map_err(|error| error.to_string())?;
    let number_of = |name: Option<&str>| {
        let unknown = |name: &str| format!("expected the name of a variant, found {name:?}");
        name.map(|name| variants.number(name).ok_or_else(|| unknown(name))).transpose()
    };
    let numbers = texts.as_string::<i32>().iter().map(number_of).collect::<Result<Vec<_>, _>>()?;
    Ok(match dtype {
        DType::U8 => Arc::new(numbers.iter().map(|own| own.map(|own| own as u8)).collect::<UInt8Array>()),
        DType::I16 => Arc::new(numbers.iter().map(|own| own.map(|own| own as i16)).collect::<Int16Array>()),
        _ => Arc::new(Int32Array::from(numbers)),
    })
}
