//! The batches to read, and a plain file of all rows.

use std::path::Path;

use memmap2::Mmap;

use crate::Result;
use crate::data::workload::{BATCH, ids};

/// Row numbers in the order of reading, and their ids in batches.
pub(crate) struct Batches {
    pub(crate) order: Vec<usize>,
    pub(crate) ids: Vec<Vec<String>>,
}

impl Batches {
    pub(crate) fn new(order: Vec<usize>) -> Self {
        let ids = order.chunks(BATCH).map(|batch| ids(batch.iter().copied())).collect();
        Self { order, ids }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[usize], &[String])> {
        self.order.chunks(BATCH).zip(self.ids.iter().map(Vec::as_slice))
    }
}

/// The rows of the plain file, one after the other.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    let file = std::fs::File::open(path)?;
    #[expect(unsafe_code, reason = "mapping a file is unsafe")]
    // SAFETY: this program has written the file and no longer changes it.
    Ok(unsafe { Mmap::map(&file)? })
}
