//! Between Python and the engine: errors, and memory of the caller.

pub(crate) mod error;
pub(crate) mod memory;
