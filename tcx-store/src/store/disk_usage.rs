//! What a folder takes on disk, and how much of it could go.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::segment::{Segment, SegmentError};
use crate::stats::DiskUsage;
use crate::storage::TEMPORARY_FILES_STAY;
use crate::storage::name::{FileName, SegmentName};
use crate::store::Store;
use crate::sys::bytes::Random;

impl Store {
    /// Lists the folder and looks at each of its files: what they take, written by any process. Where rows were invalidated, their
    /// keys are read, once for each state of the folder.
    ///
    /// ```
    /// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # let store = Store::open(dir.path(), spec, &Options::default())?;
    /// let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
    /// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
    /// store.flush()?;
    /// assert_eq!(store.disk_usage()?.dead_bytes, 0);
    /// store.invalidate(&Keys::ints([2], 0))?;
    /// assert_eq!(store.disk_usage()?.dead_bytes, store.stats().bytes / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or is not the one that was opened.
    pub fn disk_usage(&self) -> Result<DiskUsage> {
        self.refresh()?;
        let core = self.reader()?;
        let (storage, snapshot) = (&core.storage, core.snapshot());
        let listed = storage.list().map_err(|e| Error::io("cannot list", storage.path(), e))?;
        let names: Vec<FileName> = listed.iter().filter_map(|name| FileName::parse(name)).collect();
        let dead = |segment: &Segment| {
            let (bytes, dead) = (segment.bytes() as u64, segment.dead_rows(&snapshot.tombstones) as u64);
            u64::try_from(u128::from(bytes) * u128::from(dead) / segment.rows().max(1) as u128)
                .unwrap_or(bytes)
        };
        let served: HashMap<_, _> = snapshot.segments.iter().map(|own| (own.name(), own)).collect();
        let (waiting, mut runs) = waiting(&core, &names);
        runs.extend(snapshot.runs.iter().map(|indexed| indexed.run.name()));
        let merged = |name: &FileName| if let FileName::Merged(number) = name { Some(*number) } else { None };
        let newest = names.iter().filter_map(merged).max();
        let mut usage = DiskUsage::default();
        for name in names {
            // One that has vanished takes nothing.
            let Ok(info) = storage.info(&name.to_string()) else { continue };
            let dead = match &name {
                FileName::Segment(name) if waiting.contains(name) => Some(0),
                FileName::Segment(name) => served.get(name).map(|segment| dead(segment)),
                FileName::Run(name) => runs.contains(name).then_some(0),
                FileName::Change(_) => Some(0),
                FileName::Merged(number) => (Some(*number) == newest).then_some(0),
                // It may be that of a living process.
                FileName::Temporary(_) => (info.age < TEMPORARY_FILES_STAY).then_some(0),
            };
            usage.files += 1;
            usage.bytes = usage.bytes.saturating_add(info.bytes);
            usage.dead_bytes = usage.dead_bytes.saturating_add(dead.unwrap_or(info.bytes));
        }
        Ok(usage)
    }
}

/// The listed segments that may be served later, and the index runs that lead to them: a change that commits or kills them is not known,
/// or cannot be read now, or they cannot be read themselves.
fn waiting(core: &Core, names: &[FileName]) -> (BTreeSet<SegmentName>, BTreeSet<Random>) {
    let mut live = core.live();
    let (waiting, oldest_kept) = (live.waiting(), core.retention.oldest_kept());
    // One that may still be committed stays, however old it is.
    let is_kept = |segment: &&Arc<Segment>| {
        segment.born() >= oldest_kept || live.changes.committed(segment.needs()).is_none()
    };
    let waiting = waiting.iter().filter(is_kept).map(|segment| segment.name());
    let segment = |name: &FileName| if let FileName::Segment(name) = name { Some(*name) } else { None };
    let is_unread =
        |name: &SegmentName| matches!(live.segments.opened(*name), None | Some(Err(SegmentError::Failed(_))));
    let segments: BTreeSet<_> = waiting.chain(names.iter().filter_map(segment).filter(is_unread)).collect();
    let runs = live.runs_leading_to(&segments).into_iter().collect();
    (segments, runs)
}
