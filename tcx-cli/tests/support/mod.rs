//! Caches to work on, and running `tcx` on them.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod python;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcx_store::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, Options, Spec, Store};

/// The program under test.
pub(crate) const TCX: &str = env!("CARGO_BIN_EXE_tcx");

const CLIP: ColumnType = ColumnType::Struct(&[
    Field { name: "vector", column: ColumnType::Dense { dtype: DType::F32, shape: &[2, 2] } },
    Field { name: "score", column: ColumnType::Dense { dtype: DType::I64, shape: &[] } },
    Field { name: "caption", column: ColumnType::Text },
]);
const RESNET: ColumnType = ColumnType::Dense { dtype: DType::BF16, shape: &[3] };

pub(crate) fn clip(size: &str) -> Spec {
    let weights = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    let entries = [("self", "Clip"), ("network.weights", weights), ("size", size)];
    let identity = entries.map(|(path, value)| (path.to_owned(), value.to_owned()));
    let provenance = [("tcx", "0.1.0"), ("platform", "linux-x86_64")];
    let provenance = provenance.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Spec::new("clip_v1", KeyType::Text, &CLIP, Identity::from_iter(identity), provenance).unwrap()
}

pub(crate) fn resnet() -> Spec {
    Spec::new("resnet50_v1", KeyType::Int, &RESNET, Identity::default(), Vec::new()).unwrap()
}

pub(crate) fn open(cache: &Path, spec: Spec) -> Arc<Store> {
    let options = Options {
        flush_interval: Duration::from_hours(1),
        refresh_every: Duration::ZERO,
        ..Options::default()
    };
    Store::open(cache, spec, &options).unwrap()
}

/// Computes what is missing of these ids and writes it.
pub(crate) fn fill_clip(store: &Store, ids: &[&str]) {
    let mut rows = store.lookup(Keys::text(ids, 0).unwrap()).unwrap();
    let missing = rows.distinct_missing_positions();
    let of = |position: &usize| ids[*position];
    let vectors = missing.iter().map(of).flat_map(|id| (0..4).map(move |i| id.len() as f32 + i as f32 / 4.0));
    let scores = missing.iter().map(of).map(|id| id.len() as i64 * 10);
    let columns = vec![
        Column::dense(&vectors.flat_map(f32::to_le_bytes).collect::<Vec<_>>()),
        Column::dense(&scores.flat_map(i64::to_le_bytes).collect::<Vec<_>>()),
        Column::text(missing.iter().map(of).map(|id| format!("a picture of a {id}"))),
    ];
    store.computed(missing.len(), Instant::now());
    store.insert(&mut rows, &missing, columns).unwrap();
    store.flush().unwrap();
}

pub(crate) fn fill_resnet(store: &Store, ids: std::ops::Range<i64>) {
    let mut rows = store.lookup(Keys::ints(ids, 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    // 1.0, -2.0 and not a number.
    let row = [0x80, 0x3f, 0x00, 0xc0, 0xc0, 0x7f];
    store.insert(&mut rows, &missing, vec![Column::dense(&row.repeat(missing.len()))]).unwrap();
    store.flush().unwrap();
}

/// A folder to work in: `cache` with two modules, `other` with one of them and other rows, `ids.txt`.
pub(crate) fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    fill_clip(&open(&cache, clip("224")), &["cat", "dog"]);
    // A row names the processes that were at work when it was computed, to the millisecond.
    std::thread::sleep(std::time::Duration::from_millis(20));
    fill_clip(&open(&cache, clip("224")), &["horse"]);
    fill_resnet(&open(&cache, resnet()), 0..1000);
    fill_clip(&open(&dir.path().join("other"), clip("224")), &["dog", "zebra"]);
    fill_clip(&open(&dir.path().join("another"), clip("448")), &["dog"]);
    fs::write(dir.path().join("ids.txt"), "cat\ndog\nunicorn\n").unwrap();
    dir
}

/// Removes the index runs of a cache, which are not copied to a store.
pub(crate) fn remove_runs(cache: &Path) {
    for module in fs::read_dir(cache).unwrap() {
        for run in files(&module.unwrap().path(), "run-") {
            fs::remove_file(run).unwrap();
        }
    }
}

/// The files of a module whose names begin so, in order.
pub(crate) fn files(module: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(module).unwrap().map(|entry| entry.unwrap().path());
    let begins = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let mut files: Vec<PathBuf> = entries.filter(begins).collect();
    files.sort();
    files
}

/// Changes a byte in the middle of a file.
pub(crate) fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(crate) fn tcx(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(TCX).args(arguments).current_dir(dir).output().unwrap()
}

/// What a command that succeeds answers with `--json`.
pub(crate) fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = tcx(dir, &[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}
