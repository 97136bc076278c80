//! Rows: those that enter the cache, and those that were found.

pub(crate) mod column;
pub(crate) mod found;
