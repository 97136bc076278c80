//! A module of integers, and its copies.

use std::path::Path;
use std::sync::Arc;

use tcx_remote::{Bucket, Copied, pull, push};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

pub(crate) const MODULE: &str = "m_v1";

pub(crate) fn open(dir: &Path) -> Arc<Store> {
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[16] };
    let spec = Spec::new(MODULE, KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    Store::open(dir, spec, &Options::default()).unwrap()
}

/// Computes these rows, each with this value, in a segment of their own.
pub(crate) fn compute(dir: &Path, keys: &[i64], value: i64) {
    let store = open(dir);
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> = (0..16 * missing.len()).flat_map(|_| value.to_le_bytes()).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
    store.flush().unwrap();
}

pub(crate) fn invalidate(dir: &Path, key: i64) {
    open(dir).invalidate(&Keys::ints([key], 0)).unwrap();
}

pub(crate) fn values(dir: &Path, keys: &[i64]) -> Vec<Option<i64>> {
    let store = open(dir);
    store.refresh().unwrap();
    let rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let value = |position| i64::from_le_bytes(rows.bytes(0, position)[..8].try_into().unwrap());
    (0..keys.len()).map(|position| (!missing.contains(&position)).then(|| value(position))).collect()
}

pub(crate) fn push_all(dir: &Path, bucket: &Bucket) -> std::io::Result<Copied> {
    push(dir, bucket, MODULE, &mut |_, _| {})
}

pub(crate) fn pull_all(bucket: &Bucket, dir: &Path) -> std::io::Result<Copied> {
    pull(bucket, dir, MODULE, &mut |_, _| {})
}
