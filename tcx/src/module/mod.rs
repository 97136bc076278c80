//! What a user writes: the extractor, its inputs, and the loader of what is missing.

pub(crate) mod batch;
pub(crate) mod extractor;
pub(crate) mod inputs;
pub(crate) mod missing;
pub(crate) mod partial;
pub(crate) mod registry;
mod same;
