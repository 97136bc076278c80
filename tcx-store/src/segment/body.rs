//! Writing the body of a segment: in large writes, with the checksums of its blocks.

use std::io::{self, Write};

use super::message::{ALIGNMENT, alignment_of_values, padding};
use crate::storage::Draft;
use crate::sys::aligned_writer::LargeWrites;
use crate::sys::checksum::BlockChecksums;

/// What the columns of a record batch are written to.
pub(super) trait Sink {
    /// Bytes so far.
    fn len(&self) -> usize;

    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Zeros up to the next multiple of the alignment.
    fn pad(&mut self) -> io::Result<()> {
        self.put(&[0; ALIGNMENT][..padding(self.len())])
    }

    /// Zeros up to where a column's values may begin that are `len` bytes.
    fn pad_for_values(&mut self, len: usize) -> io::Result<()> {
        self.pad_to(self.len().next_multiple_of(alignment_of_values(len)))
    }

    /// Zeros up to there.
    fn pad_to(&mut self, start: usize) -> io::Result<()> {
        while self.len() < start {
            self.put(&[0; ALIGNMENT][..ALIGNMENT.min(start - self.len())])?;
        }
        Ok(())
    }
}

impl Sink for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// A file whose body is being written.
pub(super) struct Body {
    writes: LargeWrites<Checksummed>,
}

impl Body {
    /// A checksum for each block of this size.
    pub(super) fn new(draft: Box<dyn Draft>, block: usize) -> Self {
        Self { writes: LargeWrites::new(Checksummed { draft, checksums: BlockChecksums::new(block) }) }
    }

    /// Ends the body: the file, to which the tail is written, and the checksums of the body's blocks.
    pub(super) fn finish(self) -> io::Result<(Box<dyn Draft>, Vec<u64>)> {
        let Checksummed { draft, checksums } = self.writes.finish()?;
        Ok((draft, checksums.finish()))
    }
}

impl Sink for Body {
    fn len(&self) -> usize {
        self.writes.len()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writes.put(bytes)
    }
}

struct Checksummed {
    draft: Box<dyn Draft>,
    checksums: BlockChecksums,
}

impl Write for Checksummed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.draft.write(bytes)?;
        self.checksums.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.draft.flush()
    }
}
