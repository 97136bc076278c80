//! Stamps: what a caller says of the source of each sample, the time a file was changed or a hash of it. They are stored in a
//! column of their own beside the row, and a row of another stamp is a miss.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::schema::column::Column;
use crate::schema::key::{KeySeed, Keys, MAX_KEY_BYTES, TakeBits};
use crate::schema::leaf::{DType, Leaf, LeafKind};

/// The last column of a store whose rows have stamps. No output has a column of this name.
pub(crate) const STAMP: &str = "__stamp";

/// What stamps are. Part of a cache's identity, as the columns of the output are.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// use tcx_store::StampType;
///
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec.with_stamps(StampType::Number), &Options::default())?;
/// let keys = |stamp: u64| Keys::ints([7], 0).with_stamps(Column::dense(&stamp.to_le_bytes()));
///
/// let mut rows = store.lookup(keys(1)?)?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
/// assert_eq!(store.lookup(keys(1)?)?.bytes(0, 0), [10]);
/// let mut rows = store.lookup(keys(2)?)?; // the source has changed
/// assert_eq!((rows.missing(), store.stats().miss_causes.outdated), (1, 1));
/// store.insert(&mut rows, &[0], vec![Column::dense(&[20])])?; // takes the place of the other
/// assert_eq!(store.lookup(keys(1)?)?.missing(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StampType {
    /// Numbers of 64 bits.
    Number,
    /// Bytes, at most [`MAX_KEY_BYTES`] of them.
    Bytes,
}

impl StampType {
    /// The column of stamps.
    pub(crate) fn leaf(self) -> Leaf {
        let kind = match self {
            Self::Number => LeafKind::Dense { dtype: DType::I64, shape: Vec::new() },
            Self::Bytes => LeafKind::Bytes,
        };
        Leaf { name: STAMP.to_owned(), kind, optional: false }
    }
}

/// The number of the column of stamps, if there is one.
pub(crate) fn stamp_leaf(leaves: &[Leaf]) -> Option<usize> {
    let last = leaves.len().checked_sub(1)?;
    let is_stamp = |leaf: &Leaf| [StampType::Number, StampType::Bytes].iter().any(|own| own.leaf() == *leaf);
    is_stamp(&leaves[last]).then_some(last)
}

impl Keys {
    /// These keys, each with the stamp of its source: rows of other stamps are missing to a lookup, and replaced by what is
    /// inserted. Numbers are the rows of a [`Column::dense`], eight bytes each, the lowest first.
    ///
    /// ```
    /// # use tcx_store::{Column, Keys};
    /// let stamps = |stamps: [&[u8]; 2]| Column::varying(stamps.concat(), [stamps[0].len(), stamps.concat().len()]);
    /// assert!(Keys::ints([1, 1], 0).with_stamps(stamps([b"a", b"a"])).is_ok());
    /// assert!(Keys::ints([1, 1], 0).with_stamps(stamps([b"a", b"b"])).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error unless there is one stamp for each key, if a stamp is longer than [`MAX_KEY_BYTES`], or if a repeated
    /// key has two different stamps.
    pub fn with_stamps(self, stamps: Column) -> Result<Self> {
        if !stamps.has_rows(self.len(), size_of::<u64>()) {
            return Err(Error::invalid(format!("expected one stamp for each of {} ids", self.len())));
        }
        let mut seen =
            HashMap::<_, &[u8], TakeBits>::with_capacity_and_hasher(self.len(), TakeBits::default());
        for position in 0..self.len() {
            let stamp = row(&stamps, position);
            if stamp.len() > MAX_KEY_BYTES {
                return Err(Error::invalid(format!(
                    "the stamp of the id at position {position} of the batch has {} bytes, expected at most {MAX_KEY_BYTES}: use a hash of it",
                    stamp.len()
                )));
            }
            if seen.insert(self.hashed(position), stamp).is_some_and(|other| other != stamp) {
                return Err(Error::invalid(format!(
                    "the id at position {position} of the batch is repeated with another stamp: give each sample one stamp"
                )));
            }
        }
        drop(seen);
        Ok(self.stamped(stamps))
    }

    /// A number that is the same for two samples of one key, view and stamp in this process, and seldom for others.
    ///
    /// ```
    /// # use tcx_store::{Column, Keys};
    /// let stamped = |stamp: u64| Keys::ints([7], 0).with_stamps(Column::dense(&stamp.to_le_bytes()));
    /// assert_eq!(stamped(1)?.digest(0), stamped(1)?.digest(0));
    /// assert_ne!(stamped(1)?.digest(0), stamped(2)?.digest(0));
    /// assert_ne!(Keys::ints([7], 0).digest(0), Keys::ints([7], 1).digest(0));
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `position` is not below [`len`](Self::len).
    pub fn digest(&self, position: usize) -> u64 {
        let hash = self.hash(position, KeySeed::of_process());
        self.stamps().map_or(hash, |stamps| xxh3_64_with_seed(row(stamps, position), hash))
    }

    /// Whether a row of this stamp is not that of the key at `position`.
    pub(crate) fn is_outdated(&self, position: usize, stamp: &[u8]) -> bool {
        self.stamps().is_some_and(|stamps| row(stamps, position) != stamp)
    }

    /// # Errors
    ///
    /// Returns an error if the type of the stamps is not that of the store's column.
    pub(crate) fn check_stamps(&self, leaves: &[Leaf]) -> Result<()> {
        let Some(stamps) = self.stamps() else { return Ok(()) };
        let leaf = stamp_leaf(leaves).map(|leaf| &leaves[leaf]);
        if leaf.is_some_and(|leaf| stamps.fits(leaf, self.len(), None)) {
            return Ok(());
        }
        let expected = leaf.map_or("none".to_owned(), Leaf::described);
        Err(Error::invalid(format!(
            "the stamps of the ids have another type than those of the cache: expected {expected}"
        )))
    }
}

fn row(stamps: &Column, position: usize) -> &[u8] {
    stamps.row_of_width(position, size_of::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Inspection;
    use crate::schema::leaf::ColumnType;
    use crate::{Identity, KeyType, Options, Spec, Store};

    const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };

    fn spec() -> Spec {
        let spec = Spec::new("m_v1", KeyType::Int, &NUMBER, Identity::default(), Vec::new());
        spec.unwrap().with_stamps(StampType::Number)
    }

    #[test]
    fn a_replaced_row_does_not_live_beside_the_one_that_took_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), spec(), &Options::default()).unwrap();
        for stamp in 0..5_u64 {
            for view in 0..3 {
                let keys = Keys::ints([7, 8], view);
                let keys = keys.with_stamps(Column::dense(&[stamp.to_le_bytes(), [0; 8]].concat())).unwrap();
                let mut rows = store.lookup(keys).unwrap();
                let missing = rows.distinct_missing_positions();
                assert_eq!(missing.len(), if stamp == 0 { 2 } else { 1 });
                let values = vec![stamp as u8; missing.len()];
                store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
                assert_eq!((rows.bytes(0, 0), rows.bytes(0, 1)), (&[stamp as u8][..], &[0][..]));
            }
            if stamp % 2 == 0 {
                store.flush().unwrap();
            }
        }
        let count = Inspection::open(&dir.path().join("m_v1")).unwrap().count();
        assert_eq!((count.served, count.copies), (6, 0));
        let kept = Spec::read(&dir.path().join("m_v1")).unwrap();
        assert_eq!(kept.leaves(), spec().leaves());
        // A caller without stamps, such as the command, finds any row.
        assert_eq!(store.lookup(Keys::ints([7], 2)).unwrap().bytes(0, 0), [4]);
    }

    #[test]
    fn stamps_of_another_kind_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), spec(), &Options::default()).unwrap();
        let keys = Keys::ints([7], 0).with_stamps(Column::varying(vec![1], [1])).unwrap();
        let error = store.lookup(keys).unwrap_err().to_string();
        assert!(error.contains("have another type than those of the cache: expected i64 []"), "{error}");
        let mut rows = store.lookup(Keys::ints([7], 0)).unwrap();
        store.insert(&mut rows, &[0], vec![Column::dense(&[1])]).unwrap_err();
    }

    #[test]
    fn however_many_batches_replace_outdated_rows_one_seal_writes_one_change() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { flush_interval: std::time::Duration::from_hours(1), ..Options::default() };
        let store = Store::open(dir.path(), spec(), &options).unwrap();
        for stamp in 0..2_u64 {
            for key in 0..300 {
                let keys = Keys::ints([key], 0).with_stamps(Column::dense(&stamp.to_le_bytes())).unwrap();
                let mut rows = store.lookup(keys).unwrap();
                store.insert(&mut rows, &[0], vec![Column::dense(&[stamp as u8])]).unwrap();
            }
            store.flush().unwrap();
        }
        let names = std::fs::read_dir(dir.path().join("m_v1")).unwrap().map(|file| file.unwrap().file_name());
        let changes = names.filter(|name| name.to_string_lossy().starts_with("change-")).count();
        assert_eq!(changes, 2, "change 0 and one tombstone");
    }
}
