//! The engine of tcx: typed rows in immutable Arrow IPC segments, shared by every process that opens the same directory. It
//! knows keys, schemas and columns; the crate `tcx` knows tensors.
//!
//! A [`Store`] is one module's folder. Rows are found by [`Keys`] with [`Store::lookup`], added with
//! [`Store::insert`], and durable after [`Store::flush`]. `docs/format.md` describes the files, `docs/design.md`
//! explains the design.
//!
//! Every process may write. Nothing is locked, and no file changes once it has its name. No other program may edit the files of
//! a cache directory, because processes map them into memory.

#[cfg(target_endian = "big")]
compile_error!("tcx requires a little-endian machine: rows have the same bytes in memory and on disk");

mod buffer;
mod changes;
mod computed;
mod engine;
mod error;
mod index;
mod inspect;
mod leases;
mod live;
mod options;
mod read;
mod schema;
mod segment;
mod sessions;
mod stats;
mod storage;
mod store;
mod sys;
#[cfg(any(test, fuzzing, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod upkeep;
mod write;

pub use computed::attestation::Attestation;
pub use computed::losses::Losses;
pub use computed::recompute::RecomputeSession;
pub use error::{Error, ErrorKind, Result};
pub use inspect::folders::{is_module, modules};
pub use inspect::other_files::OtherFiles;
pub use inspect::pinned::{KeyBatch, Pin, PinnedRows, PinnedSegment, SegmentKeys};
pub use inspect::rows::{Row, RowCount, Rows};
pub use inspect::verify::{Damage, DamagedFile, Repaired, VerifyReport, repair, verify};
pub use inspect::{Inspection, SegmentFacts, SegmentState};
pub use options::{
    BackgroundPriority, Compression, Eviction, EvictionCandidate, EvictionPolicy, MemoryCachePolicy,
    OnMismatch, Options, ReadMode, WhenFull,
};
pub use read::destination::Destination;
pub use read::lookup::Lookup;
pub use read::lookup_options::LookupOptions;
pub use schema::column::Column;
pub use schema::identity::Identity;
pub use schema::key::{KeyType, Keys, MAX_KEY_BYTES};
pub use schema::leaf::{ColumnType, DType, DYNAMIC_DIM, Field, Leaf, LeafKind};
pub use schema::spec::Spec;
pub use schema::stamp::StampType;
pub use schema::variants::Variant;
pub use sessions::{Session, sessions};
pub use stats::batch_times::BatchTimes;
pub use stats::causes::MissCauses;
pub use stats::prices::Prices;
pub use stats::traffic::Traffic;
pub use stats::{DiskUsage, Stats, TierCounts, Tiers, Timings};
pub use storage::name::{check_module_id, module_of_folder};
pub use storage::url::url_scheme;
pub use store::Store;
pub use store::describe::{RowFacts, RowProcess, StoredStamp};
pub use store::memory::Memory;
pub use sys::fork::Process;
pub use sys::notice::{Trouble, has_listener, notice, notices_on_stderr, notices_to};

/// What a crate needs that keeps the files of modules elsewhere, or shares work. It may change with every version.
#[doc(hidden)]
pub mod unstable {
    pub use crate::inspect::verify::file::verify_file;
    pub use crate::leases::contents::{Job, WorkerCounts, most_ranges, usual_range_size};
    pub use crate::leases::progress::{JobProgress, WorkerProgress, jobs};
    pub use crate::storage::{Draft, FileInfo, Held, Parts, ReadAt, Sealed, Stamp, Storage, directory};
    pub use crate::store::leases::{Comparison, JobWorker, NextRange, Sharing, WorkerFacts};
    pub use crate::store::place::Folders;
    pub use crate::sys::disk::disk_space;
    pub use crate::sys::mmap::Mapped;
    /// Time, threads and random bits, as a simulation decides them.
    pub mod runtime {
        pub use crate::sys::runtime::{is_simulated, now, random, sleep, spawn_lasting, wait_once, wall};
    }
}
