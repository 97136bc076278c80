//! Keeping a folder small: merging, compaction, collection and limits.

pub(crate) mod compaction;
pub(crate) mod limits;
pub(crate) mod maintain;
pub(crate) mod upkeeper;
