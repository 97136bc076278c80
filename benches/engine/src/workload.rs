//! The stores to measure. Each row is one i64, the number of its key; keys are strings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store};

use crate::Result;

/// Keys looked up together.
pub(crate) const BATCH: usize = 256;

const ID: &str = "index_v1";

/// The store in the cache directory `dir`; it seals on `flush` only.
pub(crate) fn open(dir: &Path) -> Result<Arc<Store>> {
    open_with(dir, false)
}

/// Opens the store read-only, so that nothing is joined or merged.
pub(crate) fn open_to_read(dir: &Path) -> Result<Arc<Store>> {
    open_with(dir, true)
}

fn open_with(dir: &Path, read_only: bool) -> Result<Arc<Store>> {
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[] };
    let spec = Spec::new(ID, KeyType::Text, &output, Identity::default(), Vec::new())?;
    let options = Options {
        flush_interval: Duration::from_hours(1),
        flush_bytes: 512 << 20,
        write_buffer_bytes: 1 << 30,
        read_only,
        ..Options::default()
    };
    Ok(Store::open(dir, spec, &options)?)
}

/// The keys with these numbers.
pub(crate) fn keys(numbers: impl IntoIterator<Item = usize>) -> Result<Keys> {
    Ok(Keys::text(numbers.into_iter().map(|number| format!("sample_{number}")), 0)?)
}

/// Adds the rows of these keys, which the store does not have yet.
pub(crate) fn insert(store: &Store, numbers: std::ops::Range<usize>) -> Result<()> {
    let mut rows = store.lookup_with(keys(numbers.clone())?, LookupOptions::uncounted())?;
    let values: Vec<u8> = numbers.flat_map(|number| (number as i64).to_le_bytes()).collect();
    let positions: Vec<usize> = (0..rows.len()).collect();
    Ok(store.insert(&mut rows, &positions, vec![Column::dense(&values)])?)
}

/// The names and sizes of the store's files with a prefix.
pub(crate) fn files(dir: &Path, prefix: &str) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir.join(ID))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.metadata() {
            Ok(metadata) if name.starts_with(prefix) => files.push((name, metadata.len())),
            // A merge may remove files during the listing.
            _ => {}
        }
    }
    Ok(files)
}

/// Random numbers, the same for a seed in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `limit`.
    pub(crate) fn roll(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit as u64) as usize
    }
}
