//! What is known of stored rows, without reading their values.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::buffer::generation::{BufferedRow, Newest};
use crate::buffer::wanted::Wanted;
use crate::engine::Core;
use crate::error::Result;
use crate::live::snapshot::Snapshot;
use crate::schema::key::Keys;
use crate::schema::leaf::LeafKind;
use crate::schema::stamp::stamp_leaf;
use crate::segment::Segment;
use crate::sessions::{Session, recorded};
use crate::storage::name::SegmentName;
use crate::store::Store;
use crate::sys::clock::{millis, time};
use crate::sys::runtime;

/// What is known of a stored row without reading its values.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
/// # let dir = tempfile::tempdir()?;
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// let mut rows = store.lookup(Keys::ints([1], 0))?;
/// store.insert(&mut rows, &[0], vec![Column::dense(&[10])])?;
/// store.flush()?;
/// let facts = store.describe(&Keys::ints([1, 2], 0))?;
/// let row = facts[0].as_ref().expect("it is stored");
/// assert_eq!((row.bytes, row.processes[0].process), (1, std::process::id()));
/// assert!(row.segment.as_ref().is_some_and(|segment| segment.starts_with("seg-")));
/// assert_eq!(facts[1], None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowFacts {
    /// When the oldest row of its segment was computed: the row was computed then or later. All rows of a segment that was not joined
    /// with others were computed within the [flush interval](crate::Options::flush_interval), or as long as writing failed.
    pub computed: SystemTime,
    /// The processes that stored rows of the module at that time, by their [records](crate::sessions()): one of them computed the row. More
    /// than one if several did, or if the segment was joined from several. Empty if there is no record: a process writes its own when it
    /// closes the module, and once a minute before.
    pub processes: Arc<[RowProcess]>,
    /// The file of the row; `None` as long as it waits in the write buffer of this process.
    pub segment: Option<Arc<str>>,
    /// The stamp of the row, if rows of the module have stamps.
    pub stamp: Option<StoredStamp>,
    /// The bytes of its outputs as they are stored; of a compressed row, the average of its segment.
    pub bytes: u64,
}

impl RowFacts {
    /// How long ago the row was [computed](Self::computed), at most.
    pub fn age(&self) -> Duration {
        SystemTime::now().duration_since(self.computed).unwrap_or_default()
    }
}

/// A process that may have computed a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowProcess {
    /// The number of the process on its host.
    pub process: u32,
    /// When it opened the module.
    pub started: SystemTime,
    /// The host, if its provenance names it.
    pub host: Option<String>,
    /// The program, if its provenance names it.
    pub program: Option<String>,
}

/// A stamp as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredStamp {
    /// A number, such as a modification time.
    Number(u64),
    /// Bytes, such as a hash.
    Bytes(Box<[u8]>),
}

impl Store {
    /// What is known of the rows of these keys; `None` if there is no row. It reads the keys and the stamps, but no values, so it does
    /// not notice a damaged value. It counts neither hits nor misses, and compares no stamps.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys have another type than the store's, if the folder cannot be listed, or if it is not the one that
    /// was opened.
    pub fn describe(&self, keys: &Keys) -> Result<Vec<Option<RowFacts>>> {
        let core = self.reader()?;
        core.check_key_type(keys.key_type())?;
        self.refresh()?;
        let mut facts = vec![None; keys.len()];
        let buffered = core.buffered(keys);
        // Loaded after the buffer was searched: a row that was sealed in between is in this snapshot.
        let snapshot = core.unexpired();
        let mut describer = Describer::new(&core);
        for (position, facts) in facts.iter_mut().enumerate() {
            *facts = match buffered.get(&position) {
                Some(row) => Some(describer.buffered(row)),
                None => find(&core, &snapshot, keys, position).map(|(own, row)| describer.sealed(own, row)),
            };
        }
        Ok(facts)
    }
}

impl Core {
    /// The rows of these keys that wait in the write buffer, by their position.
    fn buffered(&self, keys: &Keys) -> HashMap<usize, BufferedRow> {
        let tombstones = self.snapshot().tombstones.clone();
        let oldest_kept = self.retention.oldest_kept();
        let wanted = Wanted { keys, tombstones: &tombstones, recompute: None, oldest_kept };
        let mut buffered = HashMap::new();
        self.buffer.find(&wanted, 0..keys.len(), |position, newest| {
            if let Newest::Own(row) = newest {
                buffered.insert(position, row);
            }
        });
        buffered
    }
}

/// The row that a lookup of this key serves: the first live one, in the order of the runs.
fn find<'s>(
    core: &Core,
    snapshot: &'s Snapshot,
    keys: &Keys,
    position: usize,
) -> Option<(&'s Arc<Segment>, usize)> {
    let (key, view) = (keys.key(position), keys.view());
    for indexed in &snapshot.runs {
        let (table, hash) = (indexed.run.table(), indexed.run.seed().hash(key, view));
        let mut place = table.home(hash);
        // A damaged run has no row: a lookup takes it out of service.
        while let Ok(Some(candidate)) = table.probe_from(hash, place) {
            place = candidate.next;
            let segment = indexed.segments.get(usize::from(candidate.segment)).and_then(Option::as_ref);
            let Some(segment) = segment else { continue };
            let row = candidate.row as usize;
            let is_own = segment.key(row).is_some_and(|found| (&*found.0, found.1) == (key, view));
            let is_kept = segment.born() >= core.retention.oldest_kept();
            if is_own && is_kept && !snapshot.tombstones.kill_row(segment.base(), keys, position) {
                return Some((segment, row));
            }
        }
    }
    None
}

/// Collects the facts of rows; those of a segment once.
struct Describer<'c> {
    core: &'c Core,
    stamps: Option<usize>,
    own: RowProcess,
    /// The other processes that have stored rows, by their records.
    others: Vec<Session>,
    segments: HashMap<SegmentName, (Arc<str>, Arc<[RowProcess]>)>,
}

impl<'c> Describer<'c> {
    fn new(core: &'c Core) -> Self {
        let started = millis(core.opened);
        let own = RowProcess::new(std::process::id(), time(started), &core.spec.provenance);
        let is_own = |session: &Session| session.process == own.process && millis(session.started) == started;
        let mut others = recorded(&*core.storage);
        others.retain(|session| session.stats.rows_sealed > 0 && !is_own(session));
        Self { core, stamps: stamp_leaf(&core.leaves), own, others, segments: HashMap::new() }
    }

    fn buffered(&self, found: &BufferedRow) -> RowFacts {
        let (batch, row) = (&found.batch, found.row as usize);
        let value = |leaf: usize| batch.columns[leaf].row(row, &self.core.leaves[leaf].kind);
        RowFacts {
            computed: time(batch.born),
            processes: Arc::new([self.own.clone()]),
            segment: None,
            stamp: self.stamps.and_then(|leaf| self.stamp(leaf, value(leaf))),
            bytes: (0..batch.columns.len()).map(|leaf| value(leaf).len() as u64).sum(),
        }
    }

    fn sealed(&mut self, segment: &Segment, row: usize) -> RowFacts {
        let (name, processes) = self.segment(segment);
        let stamp = self.stamps.and_then(|leaf| {
            let read = segment.read_row_of(row, &[leaf])?;
            self.stamp(leaf, &read.first()?.0)
        });
        let (computed, bytes) = (time(segment.born()), segment.row_bytes(row) as u64);
        RowFacts { computed, processes, segment: Some(name), stamp, bytes }
    }

    fn segment(&mut self, segment: &Segment) -> (Arc<str>, Arc<[RowProcess]>) {
        if let Some(known) = self.segments.get(&segment.name()) {
            return known.clone();
        }
        let facts = (Arc::from(segment.name().to_string()), self.processes(segment));
        self.segments.insert(segment.name(), facts.clone());
        facts
    }

    /// The processes that may have computed rows of a segment.
    fn processes(&self, segment: &Segment) -> Arc<[RowProcess]> {
        let first = segment.born();
        // The rows of a segment that was joined may be as young as the file.
        let last =
            if segment.inputs().is_empty() { first } else { self.written(segment).unwrap_or(u64::MAX) };
        let may_have = |started: SystemTime, ended: u64| millis(started) <= last && ended >= first;
        let others = self.others.iter().filter(|own| may_have(own.started, millis(own.ended)));
        let mut found: Vec<_> =
            others.map(|own| RowProcess::new(own.process, own.started, &own.provenance)).collect();
        if self.core.counters.rows_sealed.get() > 0 && may_have(self.own.started, u64::MAX) {
            found.push(self.own.clone());
        }
        found.into()
    }

    /// When the file was written, in milliseconds since 1970.
    fn written(&self, segment: &Segment) -> Option<u64> {
        let info = self.core.storage.info(&segment.name().to_string()).ok()?;
        Some(millis(runtime::wall().checked_sub(info.age)?))
    }

    fn stamp(&self, leaf: usize, bytes: &[u8]) -> Option<StoredStamp> {
        Some(match self.core.leaves[leaf].kind {
            LeafKind::Dense { .. } => StoredStamp::Number(u64::from_le_bytes(*bytes.first_chunk()?)),
            _ => StoredStamp::Bytes(bytes.into()),
        })
    }
}

impl RowProcess {
    fn new(process: u32, started: SystemTime, provenance: &[(String, String)]) -> Self {
        let entry =
            |name: &str| provenance.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        Self { process, started, host: entry("host"), program: entry("program") }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::schema::key::KeyType;
    use crate::schema::leaf::{ColumnType, DType, Field};
    use crate::store::memory::Memory;
    use crate::testing::{compute, keys, process};
    use crate::{Column, Compression, Identity, Options, ReadMode, Spec, StampType};

    const OUTPUT: ColumnType = ColumnType::Struct(&[
        Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[4] } },
        Field { name: "caption", column: ColumnType::Text },
    ]);

    fn stamped(host: &str) -> Spec {
        let provenance = [("host", host), ("program", "train")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let spec = Spec::new("m_v1", KeyType::Text, &OUTPUT, Identity::default(), provenance.into());
        spec.unwrap().with_stamps(StampType::Number)
    }

    fn put(store: &Store, id: &str, stamp: u64) {
        let keys = Keys::text([id], 0).unwrap().with_stamps(Column::dense(&stamp.to_le_bytes())).unwrap();
        let mut rows = store.lookup(keys).unwrap();
        let columns = vec![Column::dense(&[7; 16]), Column::text([format!("a {id}")])];
        store.insert(&mut rows, &[0], columns).unwrap();
    }

    fn check(store: &Store, is_compressed: bool) {
        put(store, "cat", 3);
        put(store, "hippopotamus", 4);
        let buffered = store.describe(&keys(&["cat"])).unwrap().remove(0).unwrap();
        assert_eq!((buffered.segment, buffered.stamp), (None, Some(StoredStamp::Number(3))));
        assert_eq!(buffered.bytes, 16 + 5 + 8);
        store.flush().unwrap();
        let before = store.stats();
        let facts = store.describe(&keys(&["cat", "dog", "hippopotamus"])).unwrap();
        let [Some(cat), None, Some(hippopotamus)] = &facts[..] else { panic!("{facts:?}") };
        assert_eq!(
            (&cat.stamp, &hippopotamus.stamp),
            (&Some(StoredStamp::Number(3)), &Some(StoredStamp::Number(4)))
        );
        if !is_compressed {
            assert_eq!((cat.bytes, hippopotamus.bytes), (16 + 5 + 8, 16 + 14 + 8));
        }
        assert!(cat.bytes > 0 && cat.segment == hippopotamus.segment);
        assert!(cat.age() < Duration::from_mins(10) && cat.computed <= SystemTime::now());
        let [own] = &*cat.processes else { panic!("{cat:?}") };
        assert_eq!(
            (own.process, own.host.as_deref(), own.program.as_deref()),
            (std::process::id(), Some("node7"), Some("train"))
        );
        let after = store.stats();
        assert_eq!((before.hits, before.misses), (after.hits, after.misses), "nothing is counted");
    }

    #[test]
    fn rows_are_described_wherever_they_are() {
        let plain = Options::default();
        let read = Options { read_mode: ReadMode::Pread, ..Options::default() };
        let compressed = Options { compression: Compression::Zstd, ..Options::default() };
        for options in [plain, read, compressed] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), stamped("node7"), &options).unwrap();
            check(&store, options.compression != Compression::None);
        }
        let store = Store::open_in_memory(&Memory::new(), stamped("node7"), &Options::default()).unwrap();
        check(&store, false);
    }

    #[test]
    fn a_row_that_is_dead_or_too_old_is_not_described() {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["a", "b"], 7);
        store.flush().unwrap();
        store.invalidate(&keys(&["a"])).unwrap();
        let facts = store.describe(&keys(&["a", "b"])).unwrap();
        assert!(facts[0].is_none() && facts[1].is_some());
        compute(&store, &["a"], 8);
        assert_eq!(store.describe(&keys(&["a"])).unwrap()[0].as_ref().unwrap().segment, None);
        let old = Options { time_to_live: Some(Duration::ZERO), ..Options::default() };
        let memory = Memory::new();
        let store = Store::open_in_memory(&memory, stamped("node7"), &old).unwrap();
        put(&store, "cat", 1);
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(store.describe(&keys(&["cat"])).unwrap(), [None]);
    }

    #[test]
    fn no_value_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { read_mode: ReadMode::Pread, ..Options::default() };
        let output = ColumnType::Dense { dtype: DType::U8, shape: &[1 << 20] };
        let open = || {
            let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new()).unwrap();
            Store::open(dir.path(), spec, &options).unwrap()
        };
        let store = open();
        let mut rows = store.lookup(keys(&["a", "b"])).unwrap();
        store.insert(&mut rows, &[0, 1], vec![Column::dense(&vec![7; 2 << 20])]).unwrap();
        drop((rows, store));
        let store = open();
        assert_eq!(store.describe(&keys(&["a", "b"])).unwrap()[1].as_ref().unwrap().bytes, 1 << 20);
        // What is read is kept there.
        assert!(store.stats().memory_cache_bytes < 1 << 20, "{}", store.stats().memory_cache_bytes);
    }

    /// Another process as its record shows it.
    fn record(dir: &Path, process: u32, started: SystemTime, ended: SystemTime) {
        let stats = crate::Stats { rows_sealed: 1, ..crate::Stats::default() };
        let provenance = vec![("host".to_owned(), format!("node{process}"))];
        let (module, is_closed) = ("m_v1".to_owned(), true);
        let uses = Vec::new();
        let session = Session { module, started, ended, is_closed, process, provenance, stats, uses };
        crate::sessions::write(&dir.join("m_v1"), &session);
    }

    #[test]
    fn of_several_processes_those_are_named_that_stored_rows_at_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["a"], 7);
        drop(store);
        let now = SystemTime::now();
        let hour = Duration::from_hours(1);
        record(dir.path(), 1, now - 3 * hour, now - 2 * hour);
        record(dir.path(), 2, now - hour, now + hour);
        record(dir.path(), 3, now + hour, now + 2 * hour);
        let store = process(dir.path());
        let facts = store.describe(&keys(&["a"])).unwrap().remove(0).unwrap();
        let hosts: Vec<_> = facts.processes.iter().map(|own| own.host.clone().unwrap_or_default()).collect();
        assert_eq!(hosts, ["node2", ""], "the one whose session lasted then, and the one that computed it");
    }
}
