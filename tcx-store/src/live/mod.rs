//! What this process knows of a module's folder: its segments, index runs and changes.

pub(crate) mod damage;
pub(crate) mod folder;
pub(crate) mod refresh;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod segments;
pub(crate) mod snapshot;
