//! How much is measured.

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Keys in the large store, unless the command names another number.
pub(crate) const KEYS: usize = 10_000_000;
/// Keys in the small store that flushes are compared with.
pub(crate) const FEW_KEYS: usize = 10_000;
