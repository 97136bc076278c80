//! The rows of a module at one moment, for a query whose parts several processes answer.

mod copies;
mod keys;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{Inspected, Inspection, SegmentState};
use crate::schema::spec::Spec;
use crate::stats::traffic::Traffic;
use crate::storage::{ReadOnlyStorage, Storage};

pub use keys::{KeyBatch, SegmentKeys};

/// The segments of a module at one moment. A process that is given it reads the same rows, or gets an error.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, PinnedRows, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let pin = PinnedRows::open(&dir.path().join("m_v1"))?.pin()?;
/// assert_eq!((pin.change, pin.segments.len(), pin.segments[0].rows), (0, 1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// What distinguishes the folder of the module from one that is removed and created again: 32 hex digits.
    pub instance: String,
    /// The newest change. What later ones invalidate cannot be read any more.
    pub change: u64,
    /// The served segments, the oldest first.
    pub segments: Vec<PinnedSegment>,
}

/// A segment of a [`Pin`].
///
/// ```
/// # use tcx_store::PinnedSegment;
/// let segment = PinnedSegment { name: "seg-1".to_owned(), rows: 10, bytes: 4096, copies: vec![3] };
/// assert!(segment.copies.len() as u64 <= segment.rows);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedSegment {
    /// The name of its file.
    pub name: String,
    /// Its rows, those too that have been invalidated.
    pub rows: u64,
    /// The size of its file.
    pub bytes: u64,
    /// Those of its rows that earlier segments have, too: two processes computed them at once. In ascending order.
    pub copies: Vec<u32>,
}

/// The live rows of a module at one moment, segment by segment: keys first, and leaves of the rows whose keys are wanted.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, PinnedRows, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::text(["cat", "dog"], 0)?)?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let folder = dir.path().join("m_v1");
/// let pin = PinnedRows::open(&folder)?.pin()?;
/// // In another process, perhaps:
/// let rows = PinnedRows::open_pinned(&folder, &pin)?;
/// for segment in 0..rows.segments() {
///     for keys in rows.keys_of(segment)? {
///         let keys = keys?;
///         let dogs: Vec<usize> = (0..keys.len()).filter(|&number| keys.key(number) == b"dog").collect();
///         let found = keys.read(&dogs, &[0])?;
///         assert_eq!(found[0].as_ref().and_then(|row| row.leaf(0)), Some(&[20][..]));
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PinnedRows {
    inspection: Inspection,
    /// The numbers of the pinned segments in the inspection.
    segments: Vec<usize>,
    /// Of each of these: its rows that earlier ones have, too.
    copies: OnceLock<Vec<Vec<u32>>>,
    /// One thread finds them, and others wait.
    finding: Mutex<()>,
    /// The newest change that counts, if another process has pinned the rows.
    change: Option<u64>,
}

impl PinnedRows {
    /// The rows that the folder of a module has now.
    ///
    /// # Errors
    ///
    /// As [`Inspection::open`].
    pub fn open(folder: &Path) -> Result<Self> {
        Inspection::open(folder).map(Self::now)
    }

    /// The rows that another process has pinned.
    ///
    /// # Errors
    ///
    /// As [`Inspection::open`]. Also returns an error if the folder is another one by now, if a change cannot be read, or if a segment is not
    /// there any more or was invalidated: then the query has to be planned again.
    pub fn open_pinned(folder: &Path, pin: &Pin) -> Result<Self> {
        Self::pinned(Inspection::of(ReadOnlyStorage::new(folder.to_owned()))?, pin)
    }

    /// As [`open`](Self::open), or [`open_pinned`](Self::open_pinned), of a folder wherever its files are.
    ///
    /// # Errors
    ///
    /// As these two.
    pub(crate) fn in_storage(storage: Arc<dyn Storage>, pin: Option<&Pin>) -> Result<Self> {
        let inspection = Inspection::in_storage(storage)?;
        if let Some(pin) = pin {
            return Self::pinned(inspection, pin);
        }
        let mut segments = inspection.segments();
        // In a moment it may be there again. A damaged one is counted.
        if let Some(own) = segments.find(|own| matches!(own.state, SegmentState::Unreadable(_))) {
            return Err(unread(&inspection, &own.name));
        }
        drop(segments);
        Ok(Self::now(inspection))
    }

    fn now(inspection: Inspection) -> Self {
        let served = |own: &Inspected| own.facts.state == SegmentState::Served && own.segment.is_some();
        let all = inspection.segments.iter().enumerate();
        let segments = all.filter(|(_, own)| served(own)).map(|(number, _)| number).collect();
        Self { inspection, segments, copies: OnceLock::new(), finding: Mutex::default(), change: None }
    }

    fn pinned(inspection: Inspection, pin: &Pin) -> Result<Self> {
        if inspection.instance() != pin.instance {
            return Err(changed(&inspection, "the module was removed and created again"));
        }
        if !inspection.has_sound_changes() || inspection.newest_change() < pin.change {
            let what = format!("not every change up to {} can be read here", pin.change);
            return Err(changed(&inspection, &what));
        }
        let find = |pinned: &PinnedSegment| {
            let at = inspection.segments.iter().position(|own| own.facts.name == pinned.name);
            let at = at.ok_or_else(|| {
                changed(&inspection, &format!("the segment {} is not there any more", pinned.name))
            })?;
            let Inspected { segment: Some(segment), .. } = &inspection.segments[at] else {
                return Err(match &inspection.segments[at].facts.state {
                    SegmentState::Damaged(what) => {
                        Error::corrupt(inspection.storage_path().join(&pinned.name), what)
                    }
                    _ => unread(&inspection, &pinned.name),
                });
            };
            if !inspection.changes.serves(segment.needs(), segment.dated()) {
                return Err(changed(&inspection, &format!("the segment {} was invalidated", pinned.name)));
            }
            if segment.rows() as u64 != pinned.rows || !are_rows(&pinned.copies, segment.rows()) {
                let what = format!("the segment {} has other rows than it is said to have", pinned.name);
                return Err(Error::of_kind(ErrorKind::Invalid, what));
            }
            Ok(at)
        };
        let segments = pin.segments.iter().map(find).collect::<Result<_>>()?;
        let copies = pin.segments.iter().map(|own| own.copies.clone()).collect::<Vec<_>>().into();
        Ok(Self { inspection, segments, copies, finding: Mutex::default(), change: Some(pin.change) })
    }

    /// What another process has to know to read the same rows. Of a module with more than one segment, all keys are read, and for each 16
    /// bytes are in memory until this returns.
    ///
    /// # Errors
    ///
    /// Returns an error if keys cannot be read now, or if some rows are not known, because a segment or a change is damaged or cannot be read:
    /// a process that reads the rows could not report it.
    pub fn pin(&self) -> Result<Pin> {
        if self.damaged_segments() > 0 || !self.has_sound_changes() {
            let path = self.inspection.storage_path().display();
            let what = "segments or changes of it are damaged or cannot be read, so rows would be left out";
            return Err(Error::of_kind(
                ErrorKind::Corrupt,
                format!("cannot pin the rows of {path}: {what}; `tcx verify` says which"),
            ));
        }
        let segments = self.segments.iter().zip(self.copies()?).map(|(&number, copies)| {
            let facts = &self.inspection.segments[number].facts;
            PinnedSegment {
                name: facts.name.clone(),
                rows: facts.rows,
                bytes: facts.bytes,
                copies: copies.clone(),
            }
        });
        let change = self.change.unwrap_or_else(|| self.inspection.newest_change());
        Ok(Pin { instance: self.inspection.instance(), change, segments: segments.collect() })
    }

    /// What a store of this module is opened for.
    pub fn spec(&self) -> &Spec {
        self.inspection.spec()
    }

    /// How many segments have live rows.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// How many segments have rows that are not known: they are damaged or cannot be read.
    pub fn damaged_segments(&self) -> u64 {
        self.inspection.segments().filter(|own| own.state.hides_rows()).count() as u64
    }

    /// Whether every change could be verified. If not, all rows before it count as invalidated.
    pub fn has_sound_changes(&self) -> bool {
        self.inspection.has_sound_changes()
    }

    /// What was asked of an object store since the rows were opened; nothing in a directory.
    pub fn traffic(&self) -> Traffic {
        self.inspection.storage.traffic()
    }

    /// The keys of the live rows of a segment, in the order of its rows, each row of the module in one segment only.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys of other segments cannot be read now, which decide what is a copy.
    ///
    /// # Panics
    ///
    /// If there is no such segment.
    pub fn keys_of(&self, segment: usize) -> Result<SegmentKeys<'_>> {
        // The first one has no row that an earlier one has.
        let copies = if segment == 0 { &[] } else { &*self.copies()?[segment] };
        Ok(SegmentKeys::new(self, &self.inspection.segments[self.segments[segment]], copies))
    }

    fn copies(&self) -> Result<&[Vec<u32>]> {
        if let Some(copies) = self.copies.get() {
            return Ok(copies);
        }
        let _alone = self.finding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copies) = self.copies.get() {
            return Ok(copies);
        }
        let copies = copies::copies(self)?;
        Ok(self.copies.get_or_init(|| copies))
    }
}

/// Whether these are numbers of rows, in ascending order.
fn are_rows(numbers: &[u32], rows: usize) -> bool {
    numbers.is_sorted_by(|one, next| one < next) && numbers.last().is_none_or(|last| (*last as usize) < rows)
}

/// Nothing is known of rows: the disk, or the store, does not answer.
fn unread(inspection: &Inspection, segment: &str) -> Error {
    let path = inspection.storage_path().join(segment);
    let what = "a part of it could not be read now, so rows would be left out; run the query again";
    Error::io("cannot read rows of", path, io::Error::other(what))
}

/// Rows that were pinned are not there any more.
fn changed(inspection: &Inspection, what: &str) -> Error {
    let path = inspection.storage_path().display();
    let message = format!(
        "the rows of {path} are not those that the query was planned for: {what}; run the query again"
    );
    Error::of_kind(ErrorKind::Replaced, message)
}

#[cfg(test)]
mod tests;
