//! Lookups: from the keys of a batch to its rows.

pub(crate) mod causes;
pub(crate) mod destination;
pub(crate) mod fast_path;
pub(crate) mod loaded;
pub(crate) mod lookup;
pub(crate) mod slow_path;
