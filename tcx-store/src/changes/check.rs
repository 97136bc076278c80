//! Verifying one change, and what takes the place of one that is damaged.

use super::same::{repair_nonce, repairs_nonce};
use super::table::{ChangeBytes, TombstoneTable, header};
use super::{Doomed, KIND_TOMBSTONE, encode};
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

/// The bytes of a change that kills every row with a smaller base, put in the place of a damaged one of this instance.
pub(crate) fn tombstone_for_everything(instance: Random, number: u64) -> Vec<u8> {
    encode(number, KIND_TOMBSTONE, repair_nonce(instance, number), &Doomed::All.payload(number))
}

/// The bytes of a new change of this instance by which processes learn that changes before it were repaired. It kills nothing itself.
pub(crate) fn news_of_repairs(instance: Random, number: u64) -> Vec<u8> {
    encode(number, KIND_TOMBSTONE, repairs_nonce(instance, number), &header(0, 0, 0, &[]))
}
