//! A full disk: copies make room for rows that were computed.

use std::fs;
use std::io;
use std::time::Duration;

use tcx_store::unstable::{disk_space, runtime};

use super::Budget;

/// This number of copies is removed one after another though that makes no room.
const IN_VAIN: u32 = 4;

/// After that, no copies are removed within this time: a write that fails is tried again every few seconds.
const IN_VAIN_FOR: Duration = Duration::from_mins(10);

impl Budget {
    /// The disk is full, and rows of this process have no room: they can be obtained nowhere else. Removes copies, those that were received
    /// last, until this number of bytes is free. Returns whether there is more room than before.
    ///
    /// # Errors
    ///
    /// Returns an error if the near tier cannot be read.
    pub(crate) fn make_room(&self, bytes: u64) -> io::Result<bool> {
        // Another thread is at it; or it was, in the parent of this process.
        let Ok(mut last_in_vain) = self.in_vain.try_lock() else { return Ok(false) };
        if last_in_vain.is_some_and(|since| runtime::now().duration_since(since) < IN_VAIN_FOR) {
            return Ok(false);
        }
        let free = || disk_space(&self.tier).map_or(0, |(free, _)| free);
        let mut copies = self.copies()?;
        copies.retain(|copy| copy.is_complete);
        copies.sort_by_key(|copy| copy.modified);
        let (before, mut in_vain) = (free(), 0);
        let mut now = before;
        while now < bytes && in_vain < IN_VAIN {
            let Some(last) = copies.pop() else { break };
            if fs::remove_file(&last.path).is_ok() {
                self.changed();
                let after = free();
                // The disk keeps what a process has open.
                in_vain = if after > now { 0 } else { in_vain + 1 };
                now = after;
            }
        }
        if in_vain == IN_VAIN {
            *last_in_vain = Some(runtime::now());
        }
        Ok(now > before)
    }
}
