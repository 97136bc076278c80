//! The modules of a cache as tables of DataFusion.

pub(crate) mod catalog;
#[cfg(feature = "distributed")]
pub(crate) mod codec;
mod columns;
mod names;
mod reader;
pub(crate) mod scan;
pub(crate) mod table;
