//! Verifying one change.

use super::table::{ChangeBytes, TombstoneTable};
use crate::sys::bytes::Random;
use crate::sys::mmap::Mapped;

/// Verifies change `number` or a merged file of that number; returns the instance of a merged one.
///
/// # Errors
///
/// Returns a description of what is wrong.
pub(crate) fn check_change(number: u64, map: Mapped) -> Result<Option<Random>, String> {
    let table = TombstoneTable::open(number, ChangeBytes::Mapped(map))?;
    let read = table.iter().count();
    if read == table.len() {
        return Ok(table.merged_in);
    }
    Err(format!("its header counts {} keys and prefixes, found {read}", table.len()))
}
