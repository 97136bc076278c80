//! Reading the rows that were found, and copying them to where they are wanted.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::{Address, Lookup, Source};
use crate::error::{Error, Result};
use crate::schema::leaf::LeafKind;
use crate::segment::memory_cache::CachedPart;
use crate::sys::helpers::{processors, take, with_helpers};
use crate::sys::residency::make_pages;

impl Lookup {
    fn width(&self, leaf: usize) -> usize {
        self.leaves[leaf].kind.width().unwrap_or(0)
    }

    /// Copies every row of a dense leaf to its place in `dst`, which is written completely.
    ///
    /// # Panics
    ///
    /// If rows are missing, if the leaf is not dense or not one of those looked up, or if `dst` has not room for exactly
    /// [`len`](Self::len) rows.
    pub fn copy_dense(&self, leaf: usize, dst: &mut [MaybeUninit<u8>]) {
        self.copy_unless(leaf, dst, |_| false);
    }

    /// Copies every row of a dense leaf to its place in `dst`, except those that the lookup has copied there: they are in `dst`
    /// already, if it is one of its [`destinations`](crate::LookupOptions::destinations). Memory
    /// at the address of a destination is taken for it, and must be unchanged since; for any other there is
    /// [`copy_dense`](Self::copy_dense).
    ///
    /// # Panics
    ///
    /// As [`copy_dense`](Self::copy_dense).
    pub fn copy_rest(&self, leaf: usize, dst: &mut [MaybeUninit<u8>]) {
        match self.copied.rows_in(leaf, dst) {
            // Nothing to copy, and the promises of `# Panics` hold all the same.
            Some(copied) if copied.iter().all(|copied| *copied) => self.assert_fits(leaf, dst),
            Some(copied) => self.copy_unless(leaf, dst, |position| copied[position]),
            None => self.copy_dense(leaf, dst),
        }
    }

    fn assert_fits(&self, leaf: usize, dst: &[MaybeUninit<u8>]) {
        assert!(matches!(self.leaves[leaf].kind, LeafKind::Dense { .. }), "leaf {leaf} is not dense");
        assert_eq!(dst.len(), self.len() * self.width(leaf), "the destination has room for every row");
        assert_eq!(self.missing, 0, "no row is missing");
        self.assert_looked_up(leaf);
    }

    fn copy_unless(&self, leaf: usize, dst: &mut [MaybeUninit<u8>], is_copied: impl Fn(usize) -> bool) {
        self.assert_fits(leaf, dst);
        let width = self.width(leaf);
        if width == 0 {
            return;
        }
        // Once per source instead of once per row: where the rows of a leaf follow one another, a row is a slice of them. These bytes
        // are not verified as a whole, but each found row was, when it was confirmed.
        let whole: Vec<Option<&[u8]>> = self.sources.iter().map(|source| source.dense(leaf)).collect();
        // `assert_fits` has compared the lengths: there is a chunk for each position, and none is left over.
        for (position, to) in dst.chunks_exact_mut(width).enumerate() {
            if is_copied(position) {
                continue;
            }
            let address = self.rows[position];
            let row = address.row as usize;
            let from = match whole[address.source as usize] {
                Some(values) => &values[row * width..][..width],
                None => self.bytes(leaf, position),
            };
            to.write_copy_of_slice(from);
        }
    }

    /// Leaves that were not looked up were neither verified nor read: their bytes must not be served.
    #[inline]
    fn assert_looked_up(&self, leaf: usize) {
        assert!(self.wanted().is_none_or(|wanted| wanted.contains(&leaf)), "leaf {leaf} was not looked up");
    }

    /// The bytes of one row of a leaf.
    ///
    /// # Panics
    ///
    /// If the row is missing, if there is no such row or leaf, or if the leaf is not one of those looked up.
    pub fn bytes(&self, leaf: usize, position: usize) -> &[u8] {
        self.assert_looked_up(leaf);
        let Address { source, row } = self.rows[position];
        let row = row as usize;
        match &self.sources[source as usize] {
            Source::Batch(batch) => batch.columns[leaf].row_of_width(row, self.width(leaf)),
            Source::Loaded(rows) => rows.row(leaf, row),
            Source::Unpacked(rows) => unpacked(rows, leaf, row).0,
            Source::Segment(segment) => {
                segment.leaf(leaf, row).expect("the row was verified when it was found")
            }
        }
    }

    /// Whether a row of a leaf has a value; every row has, if the leaf is not optional. A row without one has zeros, or
    /// no bytes.
    ///
    /// # Panics
    ///
    /// As [`bytes`](Self::bytes).
    pub fn is_present(&self, leaf: usize, position: usize) -> bool {
        self.assert_looked_up(leaf);
        let Address { source, row } = self.rows[position];
        let row = row as usize;
        match &self.sources[source as usize] {
            Source::Batch(batch) => batch.columns[leaf].is_present(row),
            Source::Loaded(rows) => rows.is_present(leaf, row),
            Source::Unpacked(rows) => unpacked(rows, leaf, row).1,
            Source::Segment(segment) => {
                segment.is_present(leaf, row).expect("the row was verified when it was found")
            }
        }
    }

    /// Copies rows of a leaf, one after the other, to `dst`, which is written completely.
    ///
    /// # Panics
    ///
    /// As [`bytes`](Self::bytes); if `dst` has not room for exactly these rows.
    pub fn copy_rows(&self, leaf: usize, positions: Range<usize>, dst: &mut [MaybeUninit<u8>]) {
        if self.is_cold && dst.len() > SHARE {
            return self.copy_cold_rows(leaf, positions, dst);
        }
        let mut rest = dst;
        for position in positions {
            let row = self.bytes(leaf, position);
            let (to, behind) = rest.split_at_mut(row.len());
            to.write_copy_of_slice(row);
            rest = behind;
        }
        assert!(rest.is_empty(), "the destination has room for these rows only");
    }

    /// As [`copy_rows`](Self::copy_rows), of rows whose pages are in no map yet, to memory that has no pages yet: making them takes longer
    /// than the copies, and several threads can.
    fn copy_cold_rows(&self, leaf: usize, positions: Range<usize>, dst: &mut [MaybeUninit<u8>]) {
        let (mut shares, mut rest, mut first, mut bytes) = (Vec::new(), dst, positions.start, 0);
        for position in positions.clone() {
            bytes += self.bytes(leaf, position).len();
            if bytes >= SHARE || position + 1 == positions.end {
                let (to, behind) = rest.split_at_mut(bytes);
                shares.push((first..position + 1, to));
                (rest, first, bytes) = (behind, position + 1, 0);
            }
        }
        assert!(rest.is_empty(), "the destination has room for these rows only");
        let helpers = shares.len().min(processors()).saturating_sub(1);
        let shares = Mutex::new(shares.into_iter());
        with_helpers("tcx-copy", helpers, || {
            while let Some((positions, mut rest)) = take(&shares) {
                make_pages(rest);
                for position in positions {
                    let row = self.bytes(leaf, position);
                    let (to, behind) = rest.split_at_mut(row.len());
                    to.write_copy_of_slice(row);
                    rest = behind;
                }
            }
        });
    }

    /// One row of a text leaf.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not UTF-8: the leaf is not text.
    ///
    /// # Panics
    ///
    /// As [`bytes`](Self::bytes).
    pub fn text(&self, leaf: usize, position: usize) -> Result<&str> {
        std::str::from_utf8(self.bytes(leaf, position)).map_err(|_| {
            Error::invalid(format!(
                "column `{}` is {}, not text",
                self.leaves[leaf].name, self.leaves[leaf].kind
            ))
        })
    }
}

/// Of rows that are copied by several threads, what one takes at a time.
const SHARE: usize = 1 << 20;

/// A leaf of a row that was decompressed, and whether it has a value.
fn unpacked(rows: &[(Arc<CachedPart>, u32)], leaf: usize, row: usize) -> (&[u8], bool) {
    let (part, number) = &rows[row];
    let value = part.rows().and_then(|rows| rows.value(leaf, *number as usize));
    value.expect("the row was complete when it was found")
}

impl Source {
    /// All rows of a dense leaf, where they lie one after the other.
    fn dense(&self, leaf: usize) -> Option<&[u8]> {
        match self {
            Self::Segment(segment) => segment.dense(leaf),
            Self::Batch(batch) => Some(batch.columns[leaf].values()),
            Self::Loaded(rows) => Some(rows.dense(leaf)),
            Self::Unpacked(_) => None,
        }
    }
}
