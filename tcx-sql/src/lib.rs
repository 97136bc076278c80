//! SQL over the cache directories of tcx, by DataFusion: each module is a table of its live rows. Nothing is written.
//!
//! Everything needs the feature `datafusion`, which is off by default: DataFusion takes minutes to build and is built
//! on another Arrow than tcx. Most users need only the command `tcx sql`.

#![cfg(feature = "datafusion")]

mod database;
mod error;
mod query;
mod tables;

pub use database::Database;
pub use error::{Error, Result};
pub use query::answer::{Answer, Column};
pub use query::value::Value;
