//! Rows of a mapped segment that are read from its file instead: their bytes are in memory of the reader, and are verified there.

use std::ops::Range;

use super::Segment;

/// The largest checksum block of rows that are read. The engine writes blocks of at most 64 KiB, but a file may have any.
pub(crate) const LARGEST_BLOCK: usize = 1 << 20;

impl Segment {
    /// Whether the bytes of a row are in the file as they are served, and the file can be read beside the map.
    pub(crate) fn is_plain(&self) -> bool {
        self.is_direct && self.map.is_file() && self.block() <= LARGEST_BLOCK
    }

    /// The checksum blocks under this range, and what of the table of checksums was not verified yet; `None` if no row is there.
    pub(crate) fn whole_blocks(&self, range: Range<usize>) -> Option<(Range<usize>, Option<Range<usize>>)> {
        self.blocks.whole(range)
    }

    /// Bytes of a checksum block.
    pub(crate) fn block(&self) -> usize {
        self.blocks.block()
    }

    /// Whether whole blocks that were read from the mapped file are as they were written. Then they count as verified: the map has the
    /// same bytes.
    pub(crate) fn verify_read(&self, start: usize, read: &[u8]) -> bool {
        self.blocks.verify_read(&self.map, start, read)
    }
}
