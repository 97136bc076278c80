//! Between Python and the engine: errors, notices, and memory of the caller.

pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod notices;
