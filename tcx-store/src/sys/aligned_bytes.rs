//! Bytes in memory that begin at an aligned address, as those of a mapped file do.

use std::io::{self, ErrorKind};
use std::ops::Deref;

/// What Arrow aligns buffers to.
const ALIGNMENT: usize = 64;

/// Bytes that grow at the end. Their address is aligned once they are [finished](Self::finish).
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    /// Has room for `ALIGNMENT` bytes more than it holds, as soon as it holds any.
    buffer: Vec<u8>,
    /// Where the bytes begin in the buffer.
    start: usize,
}

impl AlignedBytes {
    /// A copy of these bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory.
    pub(crate) fn copied(bytes: &[u8]) -> io::Result<Self> {
        let mut copied = Self::default();
        copied.extend(bytes)?;
        Ok(copied.finish())
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory. Nothing is added then.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = bytes.len().saturating_add(2 * ALIGNMENT);
        self.buffer.try_reserve(room).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
        if self.buffer.is_empty() {
            self.start = to_boundary(&self.buffer);
            self.buffer.resize(self.start, 0);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Moves the bytes to an aligned address, if growing has taken them from one. A large buffer seldom moves: the allocator extends it
    /// by whole pages.
    pub(crate) fn finish(mut self) -> Self {
        let (len, start) = (self.len(), to_boundary(&self.buffer));
        if start != self.start {
            // There is room for it, so the buffer stays where it is.
            self.buffer.resize(self.start.max(start) + len, 0);
            self.buffer.copy_within(self.start..self.start + len, start);
            self.buffer.truncate(start + len);
            self.start = start;
        }
        self
    }
}

/// How far the first aligned address is from the beginning of the buffer.
fn to_boundary(buffer: &[u8]) -> usize {
    buffer.as_ptr().addr().wrapping_neg() % ALIGNMENT
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_kept_however_they_grow() {
        for piece in [1, 7, 64, 1000, 100_000] {
            let expected: Vec<u8> = (0..3 * piece + 5).map(|at| at as u8).collect();
            let mut grown = AlignedBytes::default();
            for piece in expected.chunks(piece) {
                grown.extend(piece).unwrap();
            }
            let grown = grown.finish();
            assert!(*grown == *expected, "other bytes in pieces of {piece}");
            assert_eq!(grown.as_ptr().addr() % ALIGNMENT, 0);
        }
        assert!(AlignedBytes::default().finish().is_empty());
    }

    #[test]
    fn bytes_that_growing_has_moved_off_a_boundary_are_moved_back() {
        for off in [0, 1, 17, 63] {
            let mut buffer = Vec::with_capacity(1000);
            buffer.resize(off, 0);
            buffer.extend_from_slice(&[7; 300]);
            let moved = AlignedBytes { buffer, start: off }.finish();
            assert!(*moved == [7; 300] && moved.as_ptr().addr().is_multiple_of(ALIGNMENT));
        }
    }
}
