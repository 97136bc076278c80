//! The files that `export` writes and `import` reads: Arrow, Parquet, folders of `.npy` files. CSV and JSON Lines are only written.

use tcx_store::Row;

use crate::failure::Result;

pub(crate) mod batches;
pub(crate) mod columns;
pub(crate) mod dictionary;
pub(crate) mod draft;
pub(crate) mod id_file;
pub(crate) mod lines;
pub(crate) mod nested;
mod npy;
pub(crate) mod npy_folder;
mod nulls;
pub(crate) mod packed;
mod plain;
pub(crate) mod selection;

/// A destination of exported rows.
pub(crate) trait Sink {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<()>;
    fn finish(self: Box<Self>) -> Result<()>;
}
