//! Inspects a module's folder from outside, by its change 0: writes nothing, and needs no program that knows the module.

mod copies;
pub(crate) mod folders;
mod index;
mod listed;
pub(crate) mod other_files;
pub(crate) mod pinned;
pub(crate) mod rows;
pub(crate) mod verify;
mod within;

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::changes::{IdentityChange, KnownChanges};
use crate::error::{Error, Result};
use crate::inspect::other_files::{OtherFiles, other_files};
use crate::live::folder::Live;
use crate::live::segment_set::SegmentSet;
use crate::options::MemoryCachePolicy;
use crate::schema::spec::Spec;
use crate::segment::memory_cache::MemoryCache;
use crate::segment::{Segment, arrow_schema};
use crate::stats::Counters;
use crate::storage::name::FileName;
use crate::storage::{ReadOnlyStorage, Storage};
use crate::sys::clock::time;
pub(crate) use listed::inspected;
use listed::{came_since, settled};

/// What is kept of files that are read, not mapped: a caller that reads row after row wants the same blocks again.
const MEMORY_CACHE_BYTES: usize = 16 << 20;

/// What has become of a segment.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # use tcx_store::{Inspection, SegmentState};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # store.insert(&mut rows, &[0, 1], vec![Column::dense(&[10, 20])])?;
/// # store.flush()?;
/// let module = Inspection::open(&dir.path().join("m_v1"))?;
/// assert!(module.segments().all(|segment| segment.state == SegmentState::Served));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentState {
    /// Its rows are served, but for those that tombstones name.
    Served,
    /// Another segment stands for it: it is removed by collection.
    Replaced,
    /// Everything in it has been invalidated: it is removed by collection.
    Dead,
    /// It counts on a change that is not there yet.
    Ahead,
    /// Its rows were to replace others, and the change that commits both is not there: its process is at work, or was killed. The rows
    /// that it was to replace are served.
    Uncommitted,
    /// As [`Uncommitted`](Self::Uncommitted), and the number of that change was given to another one: it is removed by collection.
    Void,
    /// Its footer is not what was written, as the text says.
    Damaged(String),
    /// It belongs to another identity or format, as the text says.
    Foreign(String),
    /// It cannot be opened or read, as the text says.
    Unreadable(String),
}

impl SegmentState {
    /// Whether collection removes it.
    pub fn is_reclaimable(&self) -> bool {
        matches!(self, Self::Replaced | Self::Dead | Self::Void)
    }

    /// Whether it may hold hidden rows: it is damaged or cannot be read, or counts on a change that is not there.
    pub fn hides_rows(&self) -> bool {
        matches!(self, Self::Ahead | Self::Damaged(_) | Self::Unreadable(_))
    }
}

/// What the footer of a segment says.
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
/// let segment = module.segments().next().expect("a flush has sealed one");
/// assert_eq!((segment.rows, segment.base), (2, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentFacts {
    /// The name of its file.
    pub name: String,
    /// The size of its file.
    pub bytes: u64,
    /// Its rows, those too that have been invalidated.
    pub rows: u64,
    /// The newest change that its rows know.
    pub base: u64,
    /// Whether its rows replace others: they count only if the change `base` is the one that makes way for them.
    pub replaces_rows: bool,
    /// When its oldest row was computed.
    pub born: SystemTime,
    /// The version of the format that it was written in; 0 if its footer cannot be read.
    pub format: u32,
    /// What has become of it.
    pub state: SegmentState,
}

/// A module's folder at one moment, by the footers of its files; rows are read when they are asked for.
///
/// ```
/// use tcx_store::{Column, ColumnType, DType, Identity, Inspection, KeyType, Keys, Options, Spec, Store};
///
/// let dir = tempfile::tempdir()?;
/// let output = ColumnType::Dense { dtype: DType::U8, shape: &[2] };
/// let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::text(["cat", "dog"], 0)?)?;
/// store.insert(&mut rows, &[0, 1], vec![Column::dense(&[1, 2, 3, 4])])?;
/// store.flush()?;
///
/// assert_eq!(tcx_store::modules(dir.path())?, ["m_v1"]);
/// let module = Inspection::open(&dir.path().join("m_v1"))?;
/// assert_eq!(module.spec().leaves()[0].kind.to_string(), "u8 [2]");
/// assert_eq!(module.segments().map(|segment| segment.rows).sum::<u64>(), 2);
/// for row in module.rows() {
///     let row = row?;
///     println!("{}: {:?}", String::from_utf8_lossy(row.key), row.leaf(0));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Inspection {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) spec: Spec,
    identity: IdentityChange,
    pub(crate) changes: KnownChanges,
    pub(crate) segments: Vec<Inspected>,
    others: OtherFiles,
    last_used: Option<SystemTime>,
}

/// A segment and what is known of it.
#[derive(Debug)]
pub(crate) struct Inspected {
    pub(crate) facts: SegmentFacts,
    /// If it can be read, and belongs here.
    pub(crate) segment: Option<Arc<Segment>>,
    /// The keys of one that is not mapped, once one was wanted.
    keys: OnceLock<Vec<Option<OwnKey>>>,
}

/// The bytes of a key, and its view.
type OwnKey = (Box<[u8]>, u32);

impl Inspected {
    /// The key and view of a row; `None` if its bytes cannot be trusted or read.
    pub(crate) fn key(&self, row: usize) -> Option<(&[u8], u32)> {
        let segment = self.segment.as_deref()?;
        if let (Cow::Borrowed(key), view) = segment.key(row)? {
            return Some((key, view));
        }
        let key = |row| segment.key(row).map(|(key, view)| (key.into(), view));
        let keys = self.keys.get_or_init(|| (0..segment.rows()).map(key).collect());
        keys.get(row)?.as_ref().map(|(key, view)| (&**key, *view))
    }
}

impl Inspection {
    /// Looks at the folder of a module.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be listed, or if change 0 is damaged or missing.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::of(ReadOnlyStorage::new(dir.to_owned()))
    }

    pub(crate) fn of(storage: ReadOnlyStorage) -> Result<Self> {
        let failed = |e| Error::io("cannot list", storage.path(), e);
        // Before anything is read.
        let last_used =
            storage.list().map_err(failed)?.iter().filter_map(|name| storage.last_used(name)).max();
        Ok(Self { last_used, ..Self::in_storage(Arc::new(storage))? })
    }

    /// Looks at a folder wherever its files are.
    pub(crate) fn in_storage(storage: Arc<dyn Storage>) -> Result<Self> {
        let dir = storage.path();
        let identity = read_identity(&*storage)?;
        let spec = identity.spec().map_err(|what| Error::corrupt(dir, what))?;
        let schema = arrow_schema(spec.key_type, &spec.leaves);
        let counters = Arc::new(Counters::default());
        let memory_cache = Arc::new(MemoryCache::new(MEMORY_CACHE_BYTES, MemoryCachePolicy::Lru));
        let segments = SegmentSet::new(
            storage.clone(),
            schema,
            spec.leaves.clone().into(),
            memory_cache,
            counters.clone(),
        );
        let mut live = Live::new(storage.clone(), spec.clone(), segments, counters, false);
        let (names, unknown) = settled(&mut live, &*storage)?;
        let mut segments = inspected(&mut live, &*storage, &names);
        segments.extend(unknown.into_iter().map(came_since));
        let others = other_files(&*storage, &names);
        Ok(Self { storage, spec, identity, changes: live.changes, segments, others, last_used: None })
    }

    /// What a store of this folder is opened for.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The hash of everything that has to be the same for rows to be served: BLAKE3, 64 hex digits.
    pub fn digest(&self) -> String {
        self.identity.digest()
    }

    /// What distinguishes this folder from one that is removed and created again: 32 hex digits.
    pub fn instance(&self) -> String {
        self.identity.instance.to_string()
    }

    /// When the folder was made.
    pub fn created(&self) -> SystemTime {
        time(self.identity.created)
    }

    /// When a file was last read or added, as far as the file system records it. An inspection is no use.
    pub fn last_used(&self) -> Option<SystemTime> {
        self.last_used
    }

    /// The name of the folder: the id of the module, or that with the digest of its identity
    /// ([`OnMismatch::Separate`](crate::OnMismatch::Separate)).
    pub fn folder(&self) -> &str {
        let name = self.storage_path().file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.spec.module_id)
    }

    pub(crate) fn storage_path(&self) -> &Path {
        self.storage.path()
    }

    /// The segments, the oldest first.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentFacts> {
        self.segments.iter().map(|own| &own.facts)
    }

    /// The files besides the segments.
    pub fn other_files(&self) -> &OtherFiles {
        &self.others
    }

    /// The number of the newest change; 0 as long as nothing has been invalidated.
    pub fn newest_change(&self) -> u64 {
        self.changes.newest().unwrap_or(0)
    }

    /// Whether every change could be verified. If not, all rows before it count as invalidated.
    pub fn has_sound_changes(&self) -> bool {
        self.changes.are_settled()
    }

    /// Whether tombstones may name rows of the served segments: then fewer rows are served than the footers say.
    pub fn may_have_dead_rows(&self) -> bool {
        let served = self.segments().filter(|facts| facts.state == SegmentState::Served);
        served.map(|facts| facts.base).any(|base| self.changes.tombstones().may_kill(base))
    }
}

/// Reads change 0.
///
/// # Errors
///
/// Returns an error if change 0 is damaged or missing.
fn read_identity(storage: &dyn Storage) -> Result<IdentityChange> {
    let name = FileName::Change(0).to_string();
    let path = storage.path().join(&name);
    let map = storage.map(&name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::corrupt(
            &path,
            "it is missing, so the module's rows cannot be interpreted: restore this file from a backup, or delete the module with `tcx rm`",
        ),
        _ => Error::io("cannot read", &path, error),
    })?;
    IdentityChange::decode(&map).map_err(|what| {
        let advice = "the module's rows cannot be interpreted: restore this file from a backup, or delete the module with `tcx rm`";
        Error::corrupt(path, format!("{what}; {advice}"))
    })
}

impl Spec {
    /// Reads what the folder `dir` of a module is for from its change 0: a store is opened without the program that made it.
    ///
    /// ```
    /// # use tcx_store::{ColumnType, DType, Identity, KeyType, Options, Spec, Store};
    /// # let dir = tempfile::tempdir()?;
    /// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    /// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
    /// # Store::open(dir.path(), spec, &Options::default())?.invalidate_all()?;
    /// let spec = Spec::read(&dir.path().join("m_v1"))?;
    /// assert_eq!((spec.module_id(), spec.key_type()), ("m_v1", KeyType::Int));
    /// let store = Store::open(dir.path(), spec, &Options { read_only: true, ..Options::default() })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if change 0 is damaged or missing.
    pub fn read(dir: &Path) -> Result<Self> {
        let identity = read_identity(&ReadOnlyStorage::new(dir.to_owned()))?;
        identity.spec().map_err(|what| Error::corrupt(dir, what))
    }
}
