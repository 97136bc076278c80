//! Writing the body of a segment: in large writes, with the checksums of its blocks.

use std::io;

use super::message::padding;
use crate::checksum::BlockChecksums;
use crate::storage::Draft;

/// Slices of so many bytes are written as they are; smaller ones are gathered until they are as many.
const LARGE: usize = 64 << 10;
/// The most bytes of one write: what has just been read for its checksum is written while it is in the processor's cache.
const WRITE: usize = 1 << 20;

/// A file whose body is being written.
pub(super) struct Body {
    draft: Box<dyn Draft>,
    gathered: Vec<u8>,
    written: usize,
    checksums: BlockChecksums,
}

impl Body {
    pub(super) fn new(draft: Box<dyn Draft>) -> Self {
        Self { draft, gathered: Vec::with_capacity(2 * LARGE), written: 0, checksums: BlockChecksums::new() }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.written + self.gathered.len()
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < LARGE {
            self.gathered.extend_from_slice(bytes);
            return if self.gathered.len() < LARGE { Ok(()) } else { self.flush() };
        }
        self.flush()?;
        self.write(bytes)
    }

    /// Zeros up to the next multiple of the alignment.
    pub(super) fn pad(&mut self) {
        let zeros = padding(self.len());
        self.gathered.resize(self.gathered.len() + zeros, 0);
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut gathered = std::mem::take(&mut self.gathered);
        self.write(&gathered)?;
        gathered.clear();
        self.gathered = gathered;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for bytes in bytes.chunks(WRITE) {
            self.checksums.update(bytes);
            self.draft.write_all(bytes)?;
            self.written += bytes.len();
        }
        Ok(())
    }

    /// Ends the body: the file, to which the tail is written, and the checksums of the body's blocks.
    pub(super) fn finish(mut self) -> io::Result<(Box<dyn Draft>, Vec<u64>)> {
        self.flush()?;
        Ok((self.draft, self.checksums.finish()))
    }
}
