//! The modules of a cache as tables of DataFusion.

pub(crate) mod catalog;
mod columns;
mod names;
mod table;
