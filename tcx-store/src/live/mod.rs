//! What this process knows of a module's folder: its segments, index runs and changes.

pub(crate) mod damage;
pub(crate) mod folder;
pub(crate) mod listing;
pub(crate) mod refresh;
pub(crate) mod retention;
pub(crate) mod run_set;
pub(crate) mod segment_set;
pub(crate) mod snapshot;
pub(crate) mod uses;
