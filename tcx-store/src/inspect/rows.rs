//! Going through the rows of a folder, and counting them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::error::{Error, Result};
use crate::inspect::{Inspected, Inspection, SegmentState};
use crate::schema::key::{KeyHash, KeySeed};
use crate::segment::{Segment, Value};

/// A row that is served.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let module = Inspection::open(&dir.path().join("m_v1"))?;
/// let row = module.rows().next().expect("two rows are served")?;
/// assert_eq!((row.key, row.view), (1_i64.to_le_bytes().as_slice(), 0));
/// assert_eq!(row.leaf(0), Some([10].as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row<'a> {
    /// The bytes of its key; an integer is its eight bytes, the lowest first.
    pub key: &'a [u8],
    /// The view of the sample.
    pub view: u32,
    /// When it was computed, in milliseconds since 1970; joined rows count as old as the oldest of them.
    pub born: u64,
    leaves: Vec<Option<Cow<'a, [u8]>>>,
}

impl<'a> Row<'a> {
    pub(super) fn new(key: &'a [u8], view: u32, born: u64, leaves: Vec<Value<'a>>) -> Self {
        let leaves = leaves.into_iter().map(|(bytes, present)| present.then_some(bytes));
        Self { key, view, born, leaves: leaves.collect() }
    }
}

impl Row<'_> {
    /// The bytes of a leaf, verified; text is UTF-8. `None` if it is optional and has no value here. Of the leaves that
    /// [`rows_of`](Inspection::rows_of) was asked for, the first has the number 0.
    ///
    /// # Panics
    ///
    /// If there is no such leaf.
    pub fn leaf(&self, number: usize) -> Option<&[u8]> {
        self.leaves[number].as_deref()
    }
}

/// What the keys of a folder say.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// store.invalidate(&Keys::ints([2], 0))?;
/// let count = Inspection::open(&dir.path().join("m_v1"))?.count();
/// assert_eq!((count.served, count.dead, count.copies, count.damaged), (1, 1, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowCount {
    /// Rows that are served, each once.
    pub served: u64,
    /// Rows of served segments that tombstones have killed.
    pub dead: u64,
    /// Further copies of served rows: several processes computed them at once.
    pub copies: u64,
    /// Rows whose keys cannot be read.
    pub damaged: u64,
}

impl Inspection {
    /// The served rows, each once, those of the oldest segment first. A row that does not verify is an error, and the next
    /// one follows; another copy of it, if there is one, stands in for it.
    pub fn rows(&self) -> Rows<'_> {
        self.rows_of((0..self.spec.leaves.len()).collect())
    }

    /// As [`rows`](Self::rows), with these leaves in this order: of the others nothing is read or verified, and without any only
    /// the keys are.
    ///
    /// # Panics
    ///
    /// If there is no such leaf.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Field, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # const BYTE: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let output = ColumnType::Struct(&[Field { name: "a", column: BYTE }, Field { name: "b", column: BYTE }]);
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// # let mut rows = store.lookup(Keys::ints([1], 0))?;
    /// # store.insert(&mut rows, &[0], vec![Column::dense(&[10]), Column::dense(&[20])])?;
    /// # store.flush()?;
    /// let module = Inspection::open(&dir.path().join("m_v1"))?;
    /// let row = module.rows_of(vec![1]).next().expect("a row is served")?;
    /// assert_eq!(row.leaf(0), Some([20].as_slice()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rows_of(&self, leaves: Vec<usize>) -> Rows<'_> {
        assert!(leaves.iter().all(|leaf| *leaf < self.spec.leaves.len()), "the module has these leaves");
        Rows { places: Places::new(self), leaves, inspection: self }
    }

    /// Counts the rows by their keys, all of which are read.
    pub fn count(&self) -> RowCount {
        let mut places = Places::new(self);
        let mut count = RowCount::default();
        while let Some((_, _, found)) = places.next() {
            *match found {
                Found::Served(..) => &mut count.served,
                Found::Dead => &mut count.dead,
                Found::Copy => &mut count.copies,
                Found::Damaged => &mut count.damaged,
            } += 1;
        }
        count
    }
}

/// The served rows of an [`Inspection`].
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let module = Inspection::open(&dir.path().join("m_v1"))?;
/// let sample: Result<Vec<_>, _> = module.rows().step_by(2).collect();
/// assert_eq!((module.rows().count(), sample?.len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rows<'a> {
    places: Places<'a>,
    leaves: Vec<usize>,
    inspection: &'a Inspection,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<Row<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (segment, row, found) = self.places.next()?;
            let found = match found {
                Found::Served(key, view) => {
                    let leaves = segment.read_row_of(row, &self.leaves);
                    if leaves.is_none() {
                        self.places.forget_last(key, view);
                    }
                    leaves.map(|leaves| Row::new(key, view, segment.born(), leaves))
                }
                Found::Damaged => None,
                Found::Dead | Found::Copy => continue,
            };
            let path = || self.inspection.storage_path().join(segment.name().to_string());
            return Some(found.ok_or_else(|| Error::corrupt(path(), format!("row {row} does not verify"))));
        }
    }

    /// Of the rows that are passed over only the keys are read: `step_by` takes a sample, and nothing stands in for what it passes
    /// over.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        for _ in 0..count {
            while matches!(self.places.next()?.2, Found::Dead | Found::Copy) {}
        }
        self.next()
    }
}

enum Found<'a> {
    Served(&'a [u8], u32),
    Dead,
    Copy,
    Damaged,
}

/// Every row of the served segments, and what it is.
#[derive(Debug)]
struct Places<'a> {
    inspection: &'a Inspection,
    segments: Vec<(&'a Inspected, &'a Segment)>,
    at: (usize, usize),
    /// Where the first row of a hash is.
    seen: HashMap<KeyHash, (u32, u32)>,
}

impl<'a> Places<'a> {
    fn new(inspection: &'a Inspection) -> Self {
        let served = inspection.segments.iter().filter(|own| own.facts.state == SegmentState::Served);
        let segments = served.filter_map(|own| Some((own, own.segment.as_deref()?))).collect();
        Self { inspection, segments, at: (0, 0), seen: HashMap::new() }
    }

    fn next(&mut self) -> Option<(&'a Segment, usize, Found<'a>)> {
        let (mut number, mut row) = self.at;
        while row == self.segments.get(number)?.1.rows() {
            (number, row) = (number + 1, 0);
        }
        self.at = (number, row + 1);
        let (_, segment) = *self.segments.get(number)?;
        Some((segment, row, self.judge(segment, number, row)))
    }

    /// The row that came last does not verify: a copy of it that follows is served.
    fn forget_last(&mut self, key: &[u8], view: u32) {
        let (number, next) = self.at;
        if let Entry::Occupied(first) = self.seen.entry(KeySeed::of_process().hash(key, view))
            && *first.get() == (number as u32, (next - 1) as u32)
        {
            first.remove();
        }
    }

    fn judge(&mut self, segment: &'a Segment, number: usize, row: usize) -> Found<'a> {
        let Some((key, view)) = self.segments[number].0.key(row) else { return Found::Damaged };
        if self.inspection.changes.tombstones().kill(segment.base(), key, view) {
            return Found::Dead;
        }
        match self.seen.entry(KeySeed::of_process().hash(key, view)) {
            Entry::Vacant(vacant) => drop(vacant.insert((number as u32, row as u32))),
            Entry::Occupied(first) => {
                let (first, at) = *first.get();
                if self.segments[first as usize].0.key(at as usize) == Some((key, view)) {
                    return Found::Copy;
                }
            }
        }
        Found::Served(key, view)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::inspect::Inspection;
    use crate::testing::{compute, names, process, seal_all};

    #[test]
    fn a_copy_stands_in_for_a_row_that_does_not_verify() {
        const VALUE: i64 = 0x0102_0304_0506_0708;
        let dir = tempfile::tempdir().unwrap();
        // Enough of them that the last value is far from what says where the values are.
        let keys: Vec<String> = (0..5000).map(|row| row.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (first, second) = (process(dir.path()), process(dir.path()));
        compute(&first, &keys, VALUE);
        // Segments come in the order of their age, which is known in milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(3));
        compute(&second, &keys[4900..], 2);
        seal_all(&first);
        let damaged = dir.path().join("m_v1").join(&names(dir.path(), "seg-")[0]);
        seal_all(&second);
        let mut bytes = fs::read(&damaged).unwrap();
        let last = bytes.windows(8).rposition(|bytes| bytes == VALUE.to_le_bytes()).unwrap();
        bytes[last] = 3;
        fs::write(&damaged, bytes).unwrap();

        let inspection = Inspection::open(&dir.path().join("m_v1")).unwrap();
        let rows: Vec<_> = inspection.rows().collect();
        let values = |value: i64| {
            let rows = rows.iter().flatten().map(|row| row.leaf(0).unwrap());
            rows.filter(|bytes| *bytes == value.to_le_bytes()).count()
        };
        let damaged = rows.iter().filter(|row| row.is_err()).count();
        assert!(damaged >= 1 && values(VALUE) + damaged == keys.len(), "{damaged} rows do not verify");
        assert_eq!(values(2), damaged.min(100));
    }
}
