//! Memory of the caller to which rows are copied as soon as they are confirmed, while the next ones are probed.

use std::mem::MaybeUninit;

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
        Self { all, widths, copied: Copied { leaves, rows } }
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
