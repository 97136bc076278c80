//! The engine of tcx: typed rows in immutable Arrow IPC segments, shared by every process that opens the same
//! directory. It knows keys, schemas and columns; tensors are the business of the crate `tcx`.
//!
//! A [`Store`] is one module's folder. Rows are found by [`Keys`] with [`Store::lookup`], added with
//! [`Store::insert`], and durable after [`Store::flush`]. What stands on disk is described in `docs/format.md`,
//! why it is so in `docs/design.md`.
//!
//! Every process may write; nothing is locked, and no file is changed once it has its name. The one thing asked
//! of the user: no other program edits the files of a cache directory, since they are mapped into memory.

#[cfg(target_endian = "big")]
compile_error!("rows are copied between memory and disk as they are, which is little-endian");

#[cfg(unix)]
mod at_exit;
mod attestation;
#[cfg(test)]
mod attestation_tests;
mod browse;
mod buffer;
mod bytes;
mod causes;
mod changes;
mod checksum;
mod clock;
mod column;
mod compaction;
#[cfg(test)]
mod compression_tests;
mod content;
mod core;
mod count;
mod destination;
#[cfg(test)]
mod destination_tests;
mod disk_usage;
mod error;
mod express;
#[cfg(test)]
mod failed_invalidation_tests;
mod fate;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod folder_tests;
mod fork;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod hot;
mod identity;
mod index;
mod inherited;
mod insert;
mod inspect;
mod instance;
mod invalidate;
mod key;
mod large_writes;
mod live;
mod loaded;
mod lock;
mod lookup;
mod losses;
mod maintain;
mod memory;
#[cfg(test)]
mod merged_elsewhere_tests;
#[cfg(feature = "metrics")]
mod metrics;
mod mmap;
#[cfg(test)]
mod model;
mod name;
mod options;
mod other_files;
mod passed;
#[cfg(test)]
mod power_tests;
mod prefetch;
mod presence;
mod probe;
#[cfg(test)]
mod probe_tests;
mod publish;
#[cfg(test)]
mod read_tests;
mod refresh;
mod replacer;
#[cfg(test)]
mod replacer_tests;
mod retention;
#[cfg(test)]
mod retention_tests;
mod rows;
mod runs;
mod schema;
mod seal;
mod sealer;
#[cfg(test)]
mod sealer_tests;
mod segment;
mod segments;
mod sessions;
mod snapshot;
mod spare;
mod spawn;
mod spec;
mod stamp;
mod stats;
#[cfg(test)]
mod stats_tests;
mod storage;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tombstone_tests;
#[cfg(test)]
mod trouble_tests;
mod upkeep;
mod upkeeper;
#[cfg(test)]
mod upkeeper_tests;
mod verify;
mod wait;
mod warned;
mod writer;

pub use attestation::Attestation;
pub use causes::MissCauses;
pub use column::Column;
pub use destination::Destination;
pub use error::{Error, ErrorKind, Result};
pub use fork::Process;
pub use identity::Identity;
pub use inspect::{Inspection, SegmentFacts, SegmentState, modules};
pub use key::{KeyType, Keys, MAX_KEY_BYTES};
pub use lookup::Lookup;
pub use losses::Losses;
pub use name::check_module_id;
pub use options::{Compression, Options, ReadMode, WhenFull};
pub use other_files::OtherFiles;
pub use replacer::Replacer;
pub use rows::{Row, RowCount, Rows};
pub use schema::{ANY, ColumnType, DType, Field, Leaf, LeafKind};
pub use sessions::{Session, sessions};
pub use spec::Spec;
pub use stamp::StampType;
pub use stats::{DiskUsage, Stats, TierCounts, Tiers, Times};
pub use store::Store;
pub use verify::{Damage, DamagedFile, Repaired, Verified, repair, verify};
