//! The keys of a segment, and the leaves of some of its rows.

use std::borrow::Cow;
use std::sync::Arc;

use super::{PinnedRows, changed, unread};
use crate::error::Result;
use crate::inspect::Inspected;
use crate::inspect::rows::Row;
use crate::segment::{Segment, read_ahead};

/// The most rows of a batch, and about how many bytes these may have.
const BATCH: usize = 4096;
const BATCH_BYTES: usize = 32 << 20;

/// The live rows of a segment, batch by batch.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, PinnedRows, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints(0..5000, 0))?;
/// # let all: Vec<usize> = (0..5000).collect();
/// # store.insert(&mut rows, &all, vec![Column::dense(&[7; 5000])])?;
/// # store.flush()?;
/// let rows = PinnedRows::open(&dir.path().join("m_v1"))?;
/// let batches = rows.keys_of(0)?.collect::<Result<Vec<_>, _>>()?;
/// assert!(batches.iter().map(|keys| keys.len()).eq([4096, 904]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentKeys<'a> {
    rows: &'a PinnedRows,
    segment: Option<&'a Arc<Segment>>,
    /// Those rows that are to be left out and were not passed yet.
    copies: &'a [u32],
    next: usize,
}

/// Live rows of a segment, by their keys.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, PinnedRows, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::text(["cat", "dog"], 3)?)?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let rows = PinnedRows::open(&dir.path().join("m_v1"))?;
/// let keys = rows.keys_of(0)?.next().expect("there are two rows")?;
/// assert_eq!((keys.len(), keys.key(1), keys.view(1)), (2, &b"dog"[..], 3));
/// let read = keys.read(&[1], &[0])?;
/// assert_eq!(read[0].as_ref().and_then(|row| row.leaf(0)), Some(&[20][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KeyBatch<'a> {
    rows: &'a PinnedRows,
    segment: &'a Segment,
    keys: Vec<Keyed<'a>>,
    damaged: usize,
}

/// A row and its key.
#[derive(Debug)]
struct Keyed<'a> {
    row: usize,
    key: Cow<'a, [u8]>,
    view: u32,
}

impl<'a> SegmentKeys<'a> {
    pub(super) fn new(rows: &'a PinnedRows, own: &'a Inspected, copies: &'a [u32]) -> Self {
        Self { rows, segment: own.segment.as_ref(), copies, next: 0 }
    }

    /// Rows that are neither copies nor dead, of those in the next batch.
    fn batch(&mut self, segment: &'a Segment, end: usize) -> Result<KeyBatch<'a>> {
        let failures = segment.failures();
        let rows: Vec<(&Segment, usize)> = (self.next..end).map(|row| (segment, row)).collect();
        let ahead = segment.is_far().then(|| read_ahead(&*self.rows.inspection.storage, &rows, Some(&[])));
        let mut batch =
            KeyBatch { rows: self.rows, segment, keys: Vec::with_capacity(rows.len()), damaged: 0 };
        for row in self.next..end {
            if self.copies.first().is_some_and(|copy| *copy as usize == row) {
                self.copies = &self.copies[1..];
                continue;
            }
            let Some((key, view)) = segment.key(row) else {
                batch.damaged += 1;
                continue;
            };
            if self.rows.is_alive(segment, &key, view)? {
                batch.keys.push(Keyed { row, key, view });
            }
        }
        drop(ahead);
        if batch.damaged > 0 && segment.failures() > failures {
            return Err(unread(&self.rows.inspection, &segment.name().to_string()));
        }
        self.next = end;
        Ok(batch)
    }
}

impl<'a> Iterator for SegmentKeys<'a> {
    type Item = Result<KeyBatch<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let segment: &'a Segment = self.segment?;
        if self.next >= segment.rows() {
            return None;
        }
        let row_bytes = (segment.unpacked_bytes() / segment.rows()).max(1);
        let most = (BATCH_BYTES / row_bytes).clamp(1, BATCH);
        let batch = self.batch(segment, segment.rows().min(self.next + most));
        if batch.is_err() {
            self.segment = None;
        }
        Some(batch)
    }
}

impl PinnedRows {
    /// Whether no change that counts kills a row.
    ///
    /// # Errors
    ///
    /// Returns an error if a change kills it that is newer than the pinned ones.
    fn is_alive(&self, segment: &Segment, key: &[u8], view: u32) -> Result<bool> {
        let tombstones = self.inspection.changes.tombstones();
        if !tombstones.kill(segment.base(), key, view) {
            return Ok(true);
        }
        match self.change {
            Some(change) if tombstones.kill(change, key, view) => {
                Err(changed(&self.inspection, "rows were invalidated or replaced"))
            }
            _ => Ok(false),
        }
    }
}

impl KeyBatch<'_> {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The bytes of a key; an integer is its eight bytes, the lowest first.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn key(&self, number: usize) -> &[u8] {
        &self.keys[number].key
    }

    /// The view of a row.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    pub fn view(&self, number: usize) -> u32 {
        self.keys[number].view
    }

    /// The rows: the number of each in the segment, its key and its view.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, &[u8], u32)> {
        self.keys.iter().map(|own| (own.row as u32, &*own.key, own.view))
    }

    /// How many rows were left out because their keys do not verify.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// These rows, with these leaves in this order; `None` for a row that does not verify. Nothing is read of other leaves and other rows,
    /// as far as the rows are not compressed together.
    ///
    /// # Errors
    ///
    /// Returns an error if some bytes cannot be read now.
    ///
    /// # Panics
    ///
    /// If there is no such row, or no such leaf.
    pub fn read(&self, numbers: &[usize], leaves: &[usize]) -> Result<Vec<Option<Row<'_>>>> {
        let failures = self.segment.failures();
        let keyed = || numbers.iter().map(|number| &self.keys[*number]);
        let is_far = self.segment.is_far() && !leaves.is_empty();
        let places: Vec<(&Segment, usize)> = keyed().map(|own| (self.segment, own.row)).collect();
        let ahead = is_far.then(|| read_ahead(&*self.rows.inspection.storage, &places, Some(leaves)));
        let read = keyed().map(|own| {
            let leaves = self.segment.read_row_of(own.row, leaves)?;
            Some(Row::new(&own.key, own.view, self.segment.born(), leaves))
        });
        let read: Vec<Option<Row<'_>>> = read.collect();
        drop(ahead);
        if read.iter().any(Option::is_none) && self.segment.failures() > failures {
            return Err(unread(&self.rows.inspection, &self.segment.name().to_string()));
        }
        Ok(read)
    }
}
