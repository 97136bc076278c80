//! A cache to ask, and its answers.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tcx_sql::{Database, Result, Value};
use tcx_store::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, Lookup, Options, Spec, Store};

const CLIP: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[64] } },
    Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    Field { name: "caption", column: ColumnType::Text },
]);

/// A store whose rows are sealed by `flush` alone.
pub(crate) fn store(cache: &Path, spec: Spec) -> Arc<Store> {
    let options = Options {
        flush_interval: Duration::from_hours(1),
        refresh_every: Duration::ZERO,
        ..Options::default()
    };
    Store::open(cache, spec, &options).unwrap()
}

pub(crate) fn spec(module: &str, key_type: KeyType, output: &ColumnType) -> Spec {
    Spec::new(module, key_type, output, Identity::default(), Vec::new()).unwrap()
}

pub(crate) fn clip(cache: &Path) -> Arc<Store> {
    store(cache, spec("clip_v1", KeyType::Text, &CLIP))
}

/// Adds rows of these ids, which are missing, with this number as their score.
pub(crate) fn add(store: &Store, ids: &[String], number: i64) {
    let rows = store.lookup(Keys::text(ids, 0).unwrap()).unwrap();
    add_to(store, rows, ids, number);
}

pub(crate) fn add_to(store: &Store, mut rows: Lookup, ids: &[String], number: i64) {
    let vectors = ids.iter().flat_map(|id| vec![id.len() as f32; 64]).flat_map(f32::to_le_bytes);
    let columns = vec![
        Column::dense(&vectors.collect::<Vec<_>>()),
        Column::dense(&number.to_le_bytes().repeat(ids.len())),
        Column::text(ids.iter().map(|id| format!("a picture of a {id}"))),
    ];
    let all: Vec<usize> = (0..ids.len()).collect();
    store.insert(&mut rows, &all, columns).unwrap();
    store.flush().unwrap();
}

pub(crate) fn ids<T: ToString>(ids: impl IntoIterator<Item = T>) -> Vec<String> {
    ids.into_iter().map(|id| id.to_string()).collect()
}

/// The segments of a module, in order.
pub(crate) fn segments(module: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(module).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "arrow")).collect();
    segments.sort();
    segments
}

/// Changes a byte of a file.
pub(crate) fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

/// The rows of an answer.
pub(crate) fn ask(cache: &Path, sql: &str) -> Result<Vec<Vec<Value>>> {
    Database::open(cache)?.query(sql)?.collect()
}

/// The single number that is the answer.
pub(crate) fn count(cache: &Path, sql: &str) -> i64 {
    match ask(cache, sql).unwrap()[..] {
        [ref row] => match row[..] {
            [Value::Int(number)] => number,
            ref other => panic!("{sql}: {other:?}"),
        },
        ref other => panic!("{sql}: {other:?}"),
    }
}

/// The texts of the first column.
pub(crate) fn texts(cache: &Path, sql: &str) -> Vec<String> {
    let text = |row: Vec<Value>| match row.into_iter().next() {
        Some(Value::Text(text)) => text,
        other => panic!("{sql}: {other:?}"),
    };
    ask(cache, sql).unwrap().into_iter().map(text).collect()
}
