//! Rows without a value, which Arrow calls nulls.

use arrow::array::{Array, ArrayRef, UInt64Array};
use arrow::compute::take;

/// Fails if a row has no value.
pub(crate) fn no_nulls(array: &dyn Array) -> Result<(), String> {
    if array.null_count() == 0 {
        Ok(())
    } else {
        Err(format!("expected no nulls, found {}", array.null_count()))
    }
}

/// The rows that have a value: their positions and the values.
pub(crate) fn present(array: &ArrayRef) -> Result<(Vec<usize>, ArrayRef), String> {
    let present: Vec<usize> = (0..array.len()).filter(|&row| array.is_valid(row)).collect();
    if present.len() == array.len() {
        return Ok((present, array.clone()));
    }
    let rows: UInt64Array = present.iter().map(|&row| row as u64).collect();
    let picked = take(array, &rows, None).map_err(|error| error.to_string())?;
    Ok((present, picked))
}
