//! Keeping a folder small: merging, compaction, collection and limits.

pub(crate) mod compaction;
pub(crate) mod eviction;
pub(crate) mod limits;
pub(crate) mod tasks;
pub(crate) mod thread;
