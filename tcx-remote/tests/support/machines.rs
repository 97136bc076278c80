//! A module of a store that machines have open, each with a near tier of its own.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, RecomputeSession, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};

use crate::support::options;

/// Of calls while the store is away: long enough for a busy machine as long as it is not.
pub(crate) const GIVES_UP: Duration = Duration::from_secs(2);

pub(crate) fn cache_at(url: &str, near: &Path, client: ClientOptions) -> RemoteCache {
    match Location::parse(url).unwrap() {
        Location::Store(url) => RemoteCache::new(url, near, client).unwrap(),
        Location::Directory(path) => panic!("{} is a directory", path.display()),
    }
}

pub(crate) fn spec() -> Spec {
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[16] };
    Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap()
}

/// A machine: a near tier, and a process that has the module open.
pub(crate) struct Machine {
    pub(crate) near: tempfile::TempDir,
    pub(crate) cache: RemoteCache,
    pub(crate) store: Option<Arc<Store>>,
}

impl Machine {
    pub(crate) fn new(server: &Server) -> Self {
        Self::with(&server.url("p"), options(server))
    }

    /// One that waits for the store for a moment only.
    pub(crate) fn impatient(server: &Server) -> Self {
        Self::with(&server.url("p"), options(server).deadline(GIVES_UP))
    }

    pub(crate) fn with(url: &str, client: ClientOptions) -> Self {
        Self::keeping(url, client, None)
    }

    /// One whose near tier keeps copies of at most this number of bytes.
    pub(crate) fn limited(server: &Server, near_bytes: u64) -> Self {
        Self::keeping(&server.url("p"), options(server), Some(near_bytes))
    }

    pub(crate) fn keeping(url: &str, client: ClientOptions, near_bytes: Option<u64>) -> Self {
        let near = tempfile::tempdir().unwrap();
        let cache = cache_at(url, near.path(), client).near_bytes(near_bytes);
        let mut machine = Self { cache, near, store: None };
        machine.open();
        machine
    }

    pub(crate) fn open(&mut self) {
        self.open_with(&Options::default());
    }

    pub(crate) fn open_with(&mut self, options: &Options) {
        self.store = None;
        self.store = Some(self.cache.open(spec(), options).unwrap());
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Computes those of these rows that are missing.
    pub(crate) fn compute(&self, keys: &[i64], value: i64) {
        compute(self.store(), keys, value);
    }

    /// Computes a row in the place of another one.
    pub(crate) fn replace(&self, key: i64, value: i64) {
        let session = RecomputeSession::new();
        let mut rows = self.store().lookup_to_put(Keys::ints([key], 0), Some(&session)).unwrap();
        let values: Vec<u8> = (0..16).flat_map(|_| value.to_le_bytes()).collect();
        self.store().insert(&mut rows, &[0], vec![Column::dense(&values)]).unwrap();
    }

    pub(crate) fn values(&self, keys: &[i64]) -> Vec<Option<i64>> {
        values(self.store(), keys)
    }

    /// As the process sees it that has just listed the store.
    pub(crate) fn refreshed(&self, keys: &[i64]) -> Vec<Option<i64>> {
        self.store().refresh().unwrap();
        self.values(keys)
    }

    /// The copies of segments in the near tier, and those that wait.
    pub(crate) fn files(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        find(self.near.path(), &mut found);
        found.retain(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("seg-") && path.components().any(|part| part.as_os_str() == folder)
        });
        found
    }
}

fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { find(&path, found) } else { found.push(path) }
    }
}

fn compute(store: &Store, keys: &[i64], value: i64) {
    let mut rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let values: Vec<u8> = (0..16 * missing.len()).flat_map(|_| value.to_le_bytes()).collect();
    store.insert(&mut rows, &missing, vec![Column::dense(&values)]).unwrap();
}

fn values(store: &Store, keys: &[i64]) -> Vec<Option<i64>> {
    let rows = store.lookup(Keys::ints(keys.iter().copied(), 0)).unwrap();
    let missing = rows.distinct_missing_positions();
    let value = |position| i64::from_le_bytes(rows.bytes(0, position)[..8].try_into().unwrap());
    (0..keys.len()).map(|position| (!missing.contains(&position)).then(|| value(position))).collect()
}

pub(crate) fn segments(server: &Server) -> usize {
    server.keys().iter().filter(|key| key.contains("/seg-")).count()
}

/// No segment is written from now on.
pub(crate) fn deny_segments(server: &Server) {
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
}
