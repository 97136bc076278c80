//! Machines that share a cache in an object store: each has a near tier of its own, and counts what it computes.

#![expect(missing_docs, clippy::missing_panics_doc, clippy::unwrap_used, reason = "what only tests use")]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tcx::{Cache, CacheBuilder, Cached, ClientOptions, Extractor, Missing, cached_module};
use tcx_test_s3::Server;

/// Of calls while the store is away: long enough for a busy machine as long as it is not.
const GIVES_UP: Duration = Duration::from_secs(2);

/// The longest time that other calls may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// The squares of numbers.
#[cached_module(id = "squares_v1", key = i64)]
pub struct Squares {
    #[tcx(assume_stateless)]
    computed: &'static AtomicUsize,
    size: i64,
}

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, numbers: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        self.computed.fetch_add(numbers.len(), Ordering::Relaxed);
        Ok(numbers.iter().map(|number| number * number).collect())
    }
}

/// The inputs of samples: the numbers that their ids are.
pub fn load(missing: Missing<'_, i64>) -> tcx::Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

/// How a server is reached.
pub fn client(server: &Server) -> ClientOptions {
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    server.settings().into_iter().fold(ClientOptions::default().deadline(DEADLINE), set)
}

pub struct Machine {
    pub near: tempfile::TempDir,
    url: String,
    client: ClientOptions,
    computed: &'static AtomicUsize,
}

impl Machine {
    pub fn new(server: &Server) -> Self {
        let near = tempfile::tempdir().unwrap();
        let computed = Box::leak(Box::default());
        Self { near, url: server.url("features"), client: client(server), computed }
    }

    /// One that waits for the store for a moment only.
    pub fn impatient(server: &Server) -> Self {
        Self { client: client(server).deadline(GIVES_UP), ..Self::new(server) }
    }

    pub fn builder(&self) -> CacheBuilder {
        // The samples that are computed again as a check are not counted.
        Cache::builder().near_tier(self.near.path()).client_options(self.client.clone()).recheck(0.)
    }

    pub fn open(&self) -> Cache {
        self.builder().open(&self.url).unwrap()
    }

    pub fn module(&self) -> Squares {
        self.module_of(1)
    }

    /// A module of another identity for each size.
    pub fn module_of(&self, size: i64) -> Squares {
        Squares { computed: self.computed, size }
    }

    pub fn squares(&self) -> Cached<Squares> {
        self.open().module(self.module()).unwrap()
    }

    /// Whether its near tier has a file or folder of this name.
    pub fn has_file(&self, name: &str) -> bool {
        fn is_in(dir: &Path, name: &str) -> bool {
            dir.read_dir()
                .unwrap()
                .map(Result::unwrap)
                .any(|entry| entry.file_name() == name || entry.path().is_dir() && is_in(&entry.path(), name))
        }
        is_in(self.near.path(), name)
    }

    /// Loses the segments that wait in its near tier to be sent.
    pub fn lose_what_waits(&self) {
        fn remove_in(dir: &Path) {
            for entry in dir.read_dir().unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
                if entry.file_name() == "spool" {
                    std::fs::remove_dir_all(entry.path()).unwrap();
                } else {
                    remove_in(&entry.path());
                }
            }
        }
        remove_in(self.near.path());
    }

    /// How many samples were computed on this machine.
    pub fn computed(&self) -> usize {
        self.computed.load(Ordering::Relaxed)
    }
}
