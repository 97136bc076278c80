//! The memory of rows that were written, for those to come: the system takes longer to give a fresh page than it takes to
//! copy a row into one.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use crate::sys::fork::PerProcess;

/// Smaller buffers are the allocator's.
const LEAST: usize = 64 << 10;
/// The most bytes that are kept together: those of a segment.
const MOST: usize = 64 << 20;

/// Those of this process.
static SPARE: PerProcess<Mutex<Spare>> = PerProcess::new();

/// Buffers that are not in use.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    /// What they hold together.
    bytes: usize,
    /// Without a writer nothing is kept.
    writers: usize,
}

impl Spare {
    /// A buffer with room for `len` bytes and not much more.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |buffer: &Vec<u8>| (len..=len + len / 4).contains(&buffer.capacity());
        // Nearly always the last one: batches are as large as those before them.
        let buffer = self.buffers.swap_remove(self.buffers.iter().rposition(fits)?);
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Keeps a buffer, or gives it back if it is small or there are enough.
    fn give(&mut self, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = buffer.capacity();
        if self.writers == 0 || bytes < LEAST || self.bytes + bytes > MOST {
            return Some(buffer);
        }
        buffer.clear();
        self.bytes += bytes;
        self.buffers.push(buffer);
        None
    }

    fn free(&mut self) -> Vec<Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.buffers)
    }
}

fn with_spare<T>(use_spare: impl FnOnce(&mut Spare) -> T) -> T {
    use_spare(&mut SPARE.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the memory to the system: no writer is active.
pub(crate) fn free() {
    // Freed when the lock is.
    drop(with_spare(Spare::free));
}

/// As long as this exists, a writer is active and memory is kept.
#[derive(Debug)]
pub(crate) struct Writes(());

impl Writes {
    pub(crate) fn begin() -> Self {
        with_spare(|spare| spare.writers += 1);
        Self(())
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        let freed = with_spare(|spare| {
            spare.writers -= 1;
            if spare.writers == 0 { spare.free() } else { Vec::new() }
        });
        drop(freed);
    }
}

/// Bytes whose memory is used again.
#[derive(Debug)]
pub(crate) struct SpareBytes(Vec<u8>);

impl SpareBytes {
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        let reused = if bytes.len() >= LEAST { with_spare(|spare| spare.take(bytes.len())) } else { None };
        let mut buffer = reused.unwrap_or_else(|| Vec::with_capacity(bytes.len()));
        buffer.extend_from_slice(bytes);
        Self(buffer)
    }
}

impl From<Vec<u8>> for SpareBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Clone for SpareBytes {
    fn clone(&self) -> Self {
        Self::copied(self)
    }
}

impl Deref for SpareBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SpareBytes {
    fn drop(&mut self) {
        if self.0.capacity() >= LEAST {
            let buffer = std::mem::take(&mut self.0);
            drop(with_spare(|spare| spare.give(buffer)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_for_as_many_bytes_or_somewhat_fewer() {
        let mut spare = Spare { writers: 1, ..Spare::default() };
        let (small, large) = (vec![1; LEAST], vec![2; 3 * LEAST]);
        let addresses = [small.as_ptr(), large.as_ptr()];
        assert_eq!((spare.give(small), spare.give(large)), (None, None));
        assert_eq!((spare.take(4 * LEAST), spare.take(LEAST / 2)), (None, None));
        let taken = [LEAST - 1, 3 * LEAST - 9].map(|len| spare.take(len).unwrap());
        assert_eq!(
            taken.each_ref().map(|buffer| (buffer.as_ptr(), buffer.len())),
            addresses.map(|at| (at, 0))
        );
        assert_eq!((spare.take(LEAST), spare.bytes), (None, 0));
    }

    #[test]
    fn no_more_is_kept_than_a_segment_takes_nothing_small_and_nothing_without_a_writer() {
        let mut spare = Spare { writers: 1, ..Spare::default() };
        let sizes = [LEAST - 1, MOST + 1, MOST / 2, MOST / 2, MOST / 2];
        let kept = sizes.map(|size| spare.give(Vec::with_capacity(size)).is_none());
        assert_eq!(kept, [false, false, true, true, false]);
        assert_eq!((spare.buffers.len(), spare.bytes), (2, MOST));
        assert_eq!((spare.free().len(), spare.bytes), (2, 0));
        assert!(Spare::default().give(Vec::with_capacity(LEAST)).is_some());
    }

    #[test]
    fn bytes_are_those_that_were_copied_whatever_was_in_their_memory_before() {
        let _writes = Writes::begin();
        drop(SpareBytes::copied(&vec![1; 2 * LEAST]));
        let bytes: Vec<u8> = (0..2 * LEAST - 5).map(|i| (i % 251) as u8).collect();
        let copied = SpareBytes::copied(&bytes);
        assert!(*copied == bytes && *copied.clone() == bytes);
    }
}
