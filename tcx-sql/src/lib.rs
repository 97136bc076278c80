//! SQL over the caches of tcx, by DataFusion: each module is a table of its live rows. Nothing is written. `Database` runs
//! queries on one machine; a `ModuleTable` can be registered with any session of DataFusion.
//!
//! Everything needs the feature `datafusion`, which is off by default: DataFusion takes minutes to build and is built
//! on another Arrow than tcx. Most users need only the command `tcx sql`.

#![cfg(feature = "datafusion")]

mod cache;
mod database;
mod error;
mod query;
mod tables;

pub use cache::Cache;
pub use database::Database;
pub use error::{Error, Result};
pub use query::answer::{Answer, Column};
pub use query::value::Value;
#[cfg(feature = "distributed")]
pub use tables::codec::{ModuleCodec, split_scans};
pub use tables::table::ModuleTable;
