//! What a store does, seen from outside: by its public face, over a folder that others use too.

mod attestation;
mod commit_of_another;
mod compaction;
pub(super) mod compression;
mod contention;
mod destination;
mod eviction;
mod failed_invalidation;
mod faults;
mod folder;
mod gone_folder;
mod hidden;
mod invalidated_elsewhere;
mod listing;
mod lookup;
mod merged_elsewhere;
mod not_found_change;
mod outlived;
#[cfg(target_os = "linux")]
mod read_ahead;
mod reading;
mod recompute;
mod rejected;
mod replaced_at_once;
mod replaced_safely;
mod retention;
mod sealing;
mod stats;
mod superseded;
mod tombstones;
mod trimming;
mod uncommitted;
mod unread_commit;
mod unread_segment;
mod upkeep;
mod variants;
mod write_failures;
