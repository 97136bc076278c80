//! SQL over the cache directories of tcx, by DataFusion: each module is a table, of which only the rows are seen that are
//! served. Nothing is written.
//!
//! Everything needs the feature `datafusion`, which is off by default: DataFusion takes minutes to build and is built
//! on another Arrow than tcx. The command `tcx sql` is what most people want of it.

#![cfg(feature = "datafusion")]

mod answer;
mod catalog;
mod columns;
mod database;
mod depth;
mod error;
mod table;
mod value;

pub use answer::{Answer, Column};
pub use database::Database;
pub use error::{Error, Result};
pub use value::Value;
