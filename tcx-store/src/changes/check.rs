//! Verifying one change.

use super::same::{repair_nonce, says_begun, says_repairs};
use super::table::{ChangeBytes, TombstoneTable};
use crate::sys::bytes::Random;
use crate::sys::mmap::Mapped;

/// A change, or merged changes, that verify.
pub(crate) struct Sound {
    number: u64,
    nonce: Random,
    /// The instance of merged changes; `None` for a single one.
    pub(crate) merged_in: Option<Random>,
}

impl Sound {
    /// Whether a repair has put it in the place of a damaged one, or has begun with it.
    pub(crate) fn is_of_repair(&self, instance: Random) -> bool {
        self.nonce == repair_nonce(instance, self.number) || says_begun(self.nonce, instance, self.number)
    }

    /// Whether it announces that changes before it were repaired.
    pub(crate) fn says_repairs(&self, instance: Random) -> bool {
        says_repairs(self.nonce, instance, self.number)
    }
}

/// Verifies change `number` or a merged file of that number.
///
/// # Errors
///
/// Returns a description of what is wrong.
pub(crate) fn check_change(number: u64, map: Mapped) -> Result<Sound, String> {
    let table = TombstoneTable::open(number, ChangeBytes::Mapped(map))?;
    let read = table.iter().count();
    if read == table.len() {
        return Ok(Sound { number, nonce: table.nonce, merged_in: table.merged_in });
    }
    Err(format!("its header counts {} keys and prefixes, found {read}", table.len()))
}
