//! Whether every byte of a segment is as it was written.

use std::ops::Range;

use super::Segment;
use crate::schema::leaf::{Leaf, LeafKind};
use crate::sys::checksum::checksum;

impl Segment {
    /// Reads the whole file again; whether every byte is as it was written, `None` if it could not be read.
    pub(crate) fn is_intact(&self) -> Option<bool> {
        self.judge(|| {
            let Some(reader) = &self.reader else {
                return self.blocks.verify_again(&self.map) && self.has_intact_tail();
            };
            let tail = || reader.read_raw(self.tail..reader.bytes());
            reader.is_intact(&self.blocks) && tail().is_some_and(|tail| checksum(&tail) == self.name.tail)
        })
    }

    /// Whether what was copied from the map is what was written: bytes that were verified long ago may have gone bad since. Where nothing is
    /// mapped, each read was verified.
    pub(crate) fn is_intact_still(&self) -> bool {
        !self.is_mapped() || self.is_intact() == Some(true)
    }

    /// As [`is_intact`](Self::is_intact), but what this process has verified is not read again.
    pub(crate) fn is_sound(&self) -> Option<bool> {
        if !self.is_mapped() {
            return self.is_intact();
        }
        Some(self.verify_piece(0..self.body) && self.has_intact_tail())
    }

    fn has_intact_tail(&self) -> bool {
        self.map.get(self.tail..).is_some_and(|tail| checksum(tail) == self.name.tail)
    }

    /// Whether its bytes are mapped, and not read when they are wanted.
    pub(crate) fn is_mapped(&self) -> bool {
        self.reader.is_none()
    }

    /// Whether the blocks in a piece of the file are as they were written, if it is mapped.
    pub(crate) fn verify_piece(&self, piece: Range<usize>) -> bool {
        self.blocks.verify(&self.map, piece.start, piece.end.min(self.body))
    }

    /// Whether a row may be wrong although its bytes are as they were written.
    pub(crate) fn has_rows_in_doubt(&self) -> bool {
        let is_plain = |leaf: &Leaf| matches!(leaf.kind, LeafKind::Dense { .. }) && !leaf.optional;
        !self.leaves.iter().all(is_plain)
    }
}
