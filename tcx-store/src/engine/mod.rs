//! What the readers and the writer of one folder share.

pub(crate) mod count;
mod lookup;
mod named_schema;
pub(crate) mod passed;
pub(crate) mod publish;
mod refresh;
mod refused;
mod renew;
pub(crate) mod threads;
mod uses;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use arrow_schema::SchemaRef;

use crate::buffer::WriteBuffer;
use crate::engine::named_schema::named_schema;
use crate::engine::passed::Passed;
use crate::error::{Error, Result};
use crate::leases::claim::Claim;
use crate::leases::files::StoredLeases;
use crate::live::damage::DamagedFiles;
use crate::live::folder::Live;
use crate::live::refresh::{ListAt, Looks, Refresh};
use crate::live::retention::Retention;
use crate::live::segment_set::SegmentSet;
use crate::live::snapshot::Snapshot;
use crate::live::uses::UseCounts;
use crate::options::{BackgroundPriority, Compression, Options};
use crate::read::destination::Destination;
use crate::read::read_ahead::ReadAhead;
use crate::schema::key::KeyType;
use crate::schema::leaf::Leaf;
use crate::schema::spec::Spec;
use crate::segment::memory_cache::MemoryCache;
use crate::stats::Counters;
use crate::storage::Storage;
use crate::storage::warn_once::Failing;
use crate::sys::runtime;
use crate::sys::runtime::lock;

/// One folder in this process.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) spec: Spec,
    /// When it was opened.
    pub(crate) opened: SystemTime,
    pub(crate) leaves: Arc<[Leaf]>,
    pub(crate) schema: SchemaRef,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) buffer: WriteBuffer,
    pub(crate) counters: Arc<Counters>,
    pub(crate) read_ahead: ReadAhead,
    #[cfg(feature = "metrics")]
    pub(crate) published: crate::stats::metrics::Published,
    pub(crate) retention: Retention,
    pub(crate) compression: Compression,
    pub(crate) gc_grace: Duration,
    pub(crate) background_priority: BackgroundPriority,
    pub(crate) memory_cache: Arc<MemoryCache>,
    /// The bytes of the folder when they were last counted.
    pub(crate) used_bytes: AtomicU64,
    /// The bytes that this process had sealed by then.
    pub(crate) sealed_when_measured: AtomicU64,
    /// The bytes that had been sealed when rows were last evicted.
    pub(crate) sealed_at_eviction: AtomicU64,
    /// How often each segment was used. Lookups count in the segments, and never wait for it.
    uses: Mutex<UseCounts>,
    /// One thread at a time counts them.
    pub(crate) measuring: Mutex<()>,
    /// Held while room is made: two threads at once would each remove what is too much.
    pub(crate) evicting: Mutex<()>,
    /// One thread at a time joins and removes files. The writer never waits for it.
    pub(crate) upkeep: Mutex<()>,
    /// Of several machines one at a time joins segments, if listing is dear.
    pub(crate) claim: Mutex<Claim<StoredLeases>>,
    /// Whether joining and removing is to be given up: the writer ends.
    pub(crate) gives_up: AtomicBool,
    /// What of it has failed.
    pub(crate) failing: Failing,
    /// The checks that the module has passed and that are still to be recorded.
    pub(crate) passed: Passed,
    live: Mutex<Live>,
    snapshot: ArcSwap<Snapshot>,
    refresh: Mutex<Refresh>,
    looks: Looks,
    /// Whether no row that is computed is kept.
    is_read_only: AtomicBool,
    /// Set once another identity was met here: nothing is served or written any more.
    refused: OnceLock<Error>,
    /// Since when change 0 looks damaged.
    corrupt_since: Mutex<Option<Instant>>,
}

impl Core {
    /// # Errors
    ///
    /// Returns an error if the folder belongs to another identity, if change 0 is damaged, or if the folder cannot be listed.
    pub(crate) fn open(storage: Arc<dyn Storage>, spec: Spec, options: &Options) -> Result<Self> {
        Self::open_if(storage, spec, options, |listed| listed)
    }

    /// Opens the folder if `listed` accepts what became of the first listing.
    ///
    /// # Errors
    ///
    /// Returns the errors of `listed`.
    pub(crate) fn open_if(
        storage: Arc<dyn Storage>,
        spec: Spec,
        options: &Options,
        listed: impl FnOnce(Result<bool>) -> Result<bool>,
    ) -> Result<Self> {
        let schema = named_schema(&spec);
        let counters = Arc::new(Counters::default());
        let retention = Retention::new(options);
        let memory_cache =
            Arc::new(MemoryCache::new(options.memory_cache_bytes, options.memory_cache_policy));
        let leaves: Arc<[Leaf]> = spec.leaves.clone().into();
        let segments = SegmentSet::new(
            storage.clone(),
            schema.clone(),
            leaves.clone(),
            memory_cache.clone(),
            counters.clone(),
        );
        let mut live =
            Live::new(storage.clone(), spec.clone(), segments, counters.clone(), !options.read_only);
        let at = ListAt::new(storage.stamp().unwrap_or_default());
        listed(live.refresh())?;
        let snapshot = ArcSwap::from_pointee(live.snapshot(&retention));
        let claim = Mutex::new(Claim::new(StoredLeases::new(storage.clone())));
        Ok(Self {
            leaves,
            spec,
            opened: runtime::wall(),
            schema,
            storage,
            buffer: WriteBuffer::new(retention.flush_bytes(options.flush_bytes), options.write_buffer_bytes),
            counters,
            read_ahead: ReadAhead::default(),
            #[cfg(feature = "metrics")]
            published: crate::stats::metrics::Published::default(),
            retention,
            compression: options.compression,
            gc_grace: options.gc_grace,
            background_priority: options.background_priority,
            memory_cache,
            used_bytes: AtomicU64::new(0),
            sealed_when_measured: AtomicU64::new(0),
            sealed_at_eviction: AtomicU64::new(0),
            uses: Mutex::default(),
            measuring: Mutex::default(),
            evicting: Mutex::default(),
            upkeep: Mutex::default(),
            claim,
            gives_up: AtomicBool::new(false),
            failing: Failing::default(),
            passed: Passed::default(),
            live: Mutex::new(live),
            snapshot,
            refresh: Mutex::new(Refresh::new(options.refresh_every, at)),
            looks: Looks::new(options.refresh_every),
            is_read_only: AtomicBool::new(options.read_only),
            refused: OnceLock::new(),
            corrupt_since: Mutex::default(),
        })
    }

    /// From now on this process leaves files in the folder, and keeps the rows that it computes.
    pub(crate) fn allow_writing(&self) {
        self.live().allow_writing();
        self.is_read_only.store(false, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    /// Shows readers what `live` knows now.
    pub(crate) fn install(&self, live: &mut Live) {
        self.install_with(live, |show| show());
    }

    /// As [`install`](Self::install), at the moment when `install` calls what it is given.
    pub(crate) fn install_with<T>(&self, live: &mut Live, install: impl FnOnce(&dyn Fn()) -> T) -> T {
        // Before readers see these tombstones, which would kill what was recomputed later.
        let found = live.take_found();
        if !found.is_empty() {
            self.counters.drop_superseded(self.buffer.outlive_found(&found));
        }
        let snapshot = Arc::new(live.snapshot(&self.retention));
        install(&|| self.snapshot.store(snapshot.clone()))
    }

    /// The name of the folder: the id of the module, or one that names the identity too.
    pub(crate) fn name(&self) -> &str {
        let name = self.storage.path().file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.spec.module_id)
    }

    /// # Errors
    ///
    /// Returns an error if the keys have another type than the store's.
    pub(crate) fn check_key_type(&self, found: KeyType) -> Result<()> {
        self.check()?;
        let expected = self.spec.key_type;
        if found == expected {
            return Ok(());
        }
        Err(Error::invalid(format!("ids of `{}` are {expected}, found {found}", self.spec.module_id)))
    }

    /// # Errors
    ///
    /// Returns an error if the store has no such leaf.
    pub(crate) fn check_leaves(&self, leaves: &[usize]) -> Result<()> {
        let count = self.leaves.len();
        match leaves.iter().find(|leaf| **leaf >= count) {
            Some(leaf) => {
                Err(Error::invalid(format!("there is no leaf {leaf}: the store has {count} leaves")))
            }
            None => Ok(()),
        }
    }

    /// # Errors
    ///
    /// Returns an error unless each destination belongs to a dense leaf that is looked up, and has room for exactly `rows` rows
    /// of it.
    pub(crate) fn check_destination(
        &self,
        destination: &Destination<'_>,
        rows: usize,
        wanted: Option<&[usize]>,
    ) -> Result<()> {
        let Destination { leaf, ref bytes } = *destination;
        self.check_leaves(&[leaf])?;
        let width = self.leaves[leaf].kind.width();
        let Some(expected) = width.map(|width| width.saturating_mul(rows)) else {
            return Err(Error::invalid(format!(
                "leaf {leaf} cannot have a destination: its rows differ in length"
            )));
        };
        if wanted.is_some_and(|wanted| !wanted.contains(&leaf)) {
            return Err(Error::invalid(format!(
                "leaf {leaf} has a destination but is not part of the lookup"
            )));
        }
        if bytes.len() != expected {
            return Err(Error::invalid(format!(
                "the destination of leaf {leaf} has {} bytes, expected {expected} for {rows} rows",
                bytes.len()
            )));
        }
        Ok(())
    }

    /// Takes damaged files out of service; what is missing then is made again.
    pub(crate) fn drop_damaged(&self, damaged: &DamagedFiles) {
        let mut live = self.live();
        live.drop_damaged(damaged);
        self.install(&mut live);
    }

    /// The newest snapshot, without segments whose time to live is over. Rows are looked up in no other: one that another thread was
    /// preparing, when they were taken out of service, is shown later and has them still.
    pub(crate) fn unexpired(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        loop {
            let snapshot = self.snapshot();
            if !snapshot.has_expired() {
                return snapshot;
            }
            self.install(&mut self.live());
        }
    }

    /// As [`unexpired`](Self::unexpired), for a caller that nothing may be shown to but what `live` knows now.
    pub(crate) fn unexpired_with(&self, live: &mut Live) -> arc_swap::Guard<Arc<Snapshot>> {
        if self.snapshot().has_expired() {
            self.install(live);
        }
        self.snapshot()
    }
}
