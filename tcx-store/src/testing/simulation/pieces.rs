//! A segment that is read piece by piece, as on a network file system: opening it proves nothing about the next read.

use std::io;

use super::memory::MemoryStorage;
use crate::storage::ReadAt;
use crate::sys::mmap::Mapped;

/// A segment of which pieces are read. It can be read until it is closed, whatever becomes of its name.
#[derive(Debug)]
pub(super) struct Pieces {
    storage: MemoryStorage,
    name: String,
    bytes: Mapped,
}

impl Pieces {
    pub(super) fn new(storage: MemoryStorage, name: &str, bytes: Mapped) -> Self {
        Self { storage, name: name.to_owned(), bytes }
    }
}

impl ReadAt for Pieces {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        self.storage.may_read(&self.name)?;
        let piece = self.bytes.get(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(piece);
        Ok(())
    }
}
