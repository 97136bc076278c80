//! Memory of the caller to which rows are copied as soon as they are confirmed, while the next ones are probed.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;

use crate::storage::name::SegmentName;

/// Memory for the rows of a dense leaf, one after the other in the order of the keys; one of
/// [`LookupOptions::destinations`](crate::LookupOptions::destinations).
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// use tcx_store::{Destination, LookupOptions};
///
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[2] };
/// # let dir = tempfile::tempdir()?;
/// # let spec = Spec::new("pairs_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[1, 10, 2, 20])])?;
/// # store.flush()?;
/// let mut memory: Vec<u8> = Vec::with_capacity(4);
/// let bytes = &mut memory.spare_capacity_mut()[..4];
/// let destinations = &mut [Destination { leaf: 0, bytes }];
/// let options = LookupOptions { destinations, ..LookupOptions::default() };
/// let rows = store.lookup_with(Keys::ints([2, 1], 0), options)?;
/// // Copies the rows that the lookup could not copy: now all of the memory is written.
/// rows.copy_rest(0, &mut memory.spare_capacity_mut()[..4]);
/// assert_eq!(rows.bytes(0, 0), [2, 20]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Destination<'d> {
    /// The number of the leaf.
    pub leaf: usize,
    /// Room for exactly as many rows as there are keys.
    pub bytes: &'d mut [MaybeUninit<u8>],
}

/// The destinations of a lookup, and which of its rows were copied there.
#[derive(Debug, Default)]
pub(crate) struct Destinations<'a, 'd> {
    all: &'a mut [Destination<'d>],
    /// Bytes of a row of each.
    widths: Vec<usize>,
    copied: Copied,
    /// `None` for nearly every lookup: it is the only thing that rows which are not read cost.
    read: Option<Box<ReadRows>>,
}

/// A row of a segment.
pub(crate) type StoredRow = (SegmentName, u32);

/// Rows that were read before they are found, because they are expected to be those of the keys.
#[derive(Debug, Default)]
pub(crate) struct ReadRows {
    /// The verified rows in the destinations, by the number of the destination and the position.
    pub(crate) filled: HashMap<(usize, usize), StoredRow>,
    /// Rows that the file system could not read.
    pub(crate) unread: HashSet<StoredRow>,
}

/// Rows that were copied when they were found.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Their numbers, and the addresses of their memory: the address distinguishes these copies from a copy into other memory.
    leaves: Vec<(usize, usize)>,
    /// By the position of the row; empty if there are no destinations.
    rows: Vec<bool>,
}

impl<'a, 'd> Destinations<'a, 'd> {
    /// For `rows` rows.
    pub(crate) fn new(all: &'a mut [Destination<'d>], rows: usize) -> Self {
        let leaves =
            all.iter().map(|destination| (destination.leaf, destination.bytes.as_ptr().addr())).collect();
        // The caller has checked that each has room for exactly these rows. Without rows, the width does not matter.
        let widths = all.iter().map(|destination| destination.bytes.len() / rows.max(1)).collect();
        let rows = if all.is_empty() { Vec::new() } else { vec![false; rows] };
        Self { all, widths, copied: Copied { leaves, rows }, read: None }
    }

    /// The leaves, by number, and how many bytes a row of each has.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (usize, usize)> {
        self.all.iter().map(|destination| destination.leaf).zip(self.widths.iter().copied())
    }

    /// Copies the leaves of the rows at `position` and after it. [`leaves`](Self::leaves) has the bytes of each row.
    #[inline]
    pub(crate) fn copy<'v>(&mut self, position: usize, rows: usize, leaves: impl Iterator<Item = &'v [u8]>) {
        // Empty without destinations: the common lookup ends here.
        let Some(copied) = self.copied.rows.get_mut(position..position + rows) else { return };
        for ((destination, width), bytes) in self.all.iter_mut().zip(&self.widths).zip(leaves) {
            // `bytes` are as many rows of `width` bytes: they end within the destination, which has a row for each position.
            let start = position * width;
            destination.bytes[start..start + bytes.len()].write_copy_of_slice(bytes);
        }
        // Last: a row counts as copied only when every destination has it.
        copied.fill(true);
    }

    /// As [`copy`](Self::copy), of one row. A destination that it was read to has it already.
    #[cold]
    pub(crate) fn copy_unless_read<'v>(
        &mut self,
        position: usize,
        row: StoredRow,
        leaves: impl Iterator<Item = &'v [u8]>,
    ) {
        let Some(copied) = self.copied.rows.get_mut(position) else { return };
        for (number, ((destination, width), bytes)) in
            self.all.iter_mut().zip(&self.widths).zip(leaves).enumerate()
        {
            if !self.read.as_ref().is_some_and(|read| read.has(number, position, row)) {
                destination.bytes[position * width..][..bytes.len()].write_copy_of_slice(bytes);
            }
        }
        // Last: a row counts as copied only when every destination has it.
        *copied = true;
    }

    /// The row at `position` is found: it counts as copied if it was read to every destination.
    #[inline]
    pub(crate) fn found(&mut self, position: usize, row: StoredRow) {
        let Some(read) = &self.read else { return };
        if let Some(copied) = self.copied.rows.get_mut(position)
            && (0..self.all.len()).all(|number| read.has(number, position, row))
        {
            *copied = true;
        }
    }

    /// The rows that were read before they are found, if any were.
    #[inline]
    pub(crate) fn read(&self) -> Option<&ReadRows> {
        self.read.as_deref()
    }

    /// Adds rows that were read.
    pub(crate) fn add_read(&mut self) -> &mut ReadRows {
        self.read.get_or_insert_default()
    }

    /// What was read is of a snapshot that is not used any more.
    pub(crate) fn forget_read(&mut self) {
        self.read = None;
    }

    /// The memory of the destinations with these numbers and positions, in this order, each once.
    pub(crate) fn memory(&mut self, wanted: &[(usize, usize)]) -> Vec<&mut [MaybeUninit<u8>]> {
        let mut found = Vec::with_capacity(wanted.len());
        let mut wanted = wanted.iter().copied().peekable();
        for (number, (destination, &width)) in self.all.iter_mut().zip(&self.widths).enumerate() {
            let (mut rest, mut next) = (&mut *destination.bytes, 0);
            while let Some((_, position)) = wanted.next_if(|&(own, _)| own == number) {
                let row = rest.split_off_mut(..(position + 1 - next) * width);
                let Some((_, row)) = row.and_then(|row| row.split_at_mut_checked((position - next) * width))
                else {
                    return found;
                };
                found.push(row);
                next = position + 1;
            }
        }
        found
    }

    /// Copies the leaves of the row at `position`, which `leaf` returns by their numbers. A row of another width than a
    /// destination has room for is left to [`Lookup::copy_rest`](crate::Lookup::copy_rest).
    pub(crate) fn copy_row<'v>(&mut self, position: usize, leaf: impl Fn(usize) -> Option<&'v [u8]>) {
        let Some(copied) = self.copied.rows.get_mut(position) else { return };
        for (destination, &width) in self.all.iter_mut().zip(&self.widths) {
            let Some(bytes) = leaf(destination.leaf).filter(|bytes| bytes.len() == width) else { return };
            destination.bytes[position * width..][..width].write_copy_of_slice(bytes);
        }
        // Last: a row counts as copied only when every destination has it.
        *copied = true;
    }

    /// The row is to be copied again.
    pub(crate) fn forget(&mut self, position: usize) {
        self.copied.forget(position);
    }

    pub(crate) fn into_copied(self) -> Copied {
        self.copied
    }
}

impl ReadRows {
    pub(crate) fn is_unread(&self, row: StoredRow) -> bool {
        self.unread.contains(&row)
    }

    fn has(&self, destination: usize, position: usize, row: StoredRow) -> bool {
        self.filled.get(&(destination, position)) == Some(&row)
    }
}

impl Copied {
    /// The row is to be copied again, from where it is found next.
    pub(crate) fn forget(&mut self, position: usize) {
        if let Some(copied) = self.rows.get_mut(position) {
            *copied = false;
        }
    }

    /// By the position of the row, whether it was copied, if it is this memory of a leaf to which rows were.
    pub(crate) fn rows_in(&self, leaf: usize, memory: &[MaybeUninit<u8>]) -> Option<&[bool]> {
        // An address says nothing of what was freed and allocated in between; `Lookup::copy_rest` says so to its caller.
        self.leaves.contains(&(leaf, memory.as_ptr().addr())).then_some(&*self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_row_is_its_own_part_of_its_destination() {
        let mut memory = [vec![MaybeUninit::uninit(); 12], vec![MaybeUninit::uninit(); 4]];
        let starts = memory.each_ref().map(|memory| memory.as_ptr().addr());
        let [first, second] = &mut memory;
        let all = &mut [Destination { leaf: 3, bytes: first }, Destination { leaf: 0, bytes: second }];
        let mut destinations = Destinations::new(all, 4);
        let wanted = [(0, 1), (0, 2), (1, 0), (1, 3)];
        let found: Vec<(usize, usize)> =
            destinations.memory(&wanted).iter().map(|row| (row.as_ptr().addr(), row.len())).collect();
        let expected = [(starts[0] + 3, 3), (starts[0] + 6, 3), (starts[1], 1), (starts[1] + 3, 1)];
        assert_eq!(found, expected);
        assert!(destinations.memory(&[(0, 4)]).is_empty() && destinations.memory(&[(2, 0)]).is_empty());
    }

    #[test]
    fn a_row_that_was_read_counts_as_copied_only_if_it_is_found_and_is_copied_if_another_is() {
        let (own, other) = ([1, 2].map(MaybeUninit::new), [3, 4]);
        let mut memory = own;
        let address = memory.as_ptr().addr();
        let all = &mut [Destination { leaf: 0, bytes: &mut memory }];
        let mut destinations = Destinations::new(all, 2);
        let name = SegmentName { random: crate::sys::bytes::Random([7; 16]), tail: 9 };
        destinations.add_read().filled.extend([((0, 0), (name, 5)), ((0, 1), (name, 6))]);
        destinations.found(0, (name, 5));
        destinations.found(1, (name, 7));
        assert_eq!(destinations.copied.rows, [true, false]);
        destinations.copy_unless_read(0, (name, 5), [&other[..1]].into_iter());
        destinations.copy_unless_read(1, (name, 7), [&other[1..]].into_iter());
        let copied = destinations.into_copied();
        assert_eq!((copied.rows, copied.leaves), (vec![true, true], vec![(0, address)]));
    }
}
