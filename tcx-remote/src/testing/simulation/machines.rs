//! The disks of the machines.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_store::testing::simulation::objects::Objects;
use tcx_store::testing::simulation::remote::Machines;
use tcx_store::unstable::Storage;
use tempfile::TempDir;

use super::store::{PREFIX, SimulatedStore};
use crate::bucket::Bucket;
use crate::folder::RemoteFolder;
use crate::near::Near;
use crate::near::budget::Budget;
use crate::options::ClientOptions;
use crate::url::Location;

const MODULE: &str = "m_v1";

/// What may wait on a machine: on every other one, little.
const SPOOL_BYTES: [u64; 2] = [1 << 30, 12_000];

/// The bytes of copies on a machine, by the seed: all, a few, and none.
const NEAR_BYTES: [Option<u64>; 4] = [None, None, Some(12_000), Some(0)];

/// A near tier for each machine.
pub(super) struct Disks {
    dir: TempDir,
    near_bytes: Option<u64>,
}

impl Disks {
    pub(super) fn new(seed: u64) -> Self {
        let near_bytes = NEAR_BYTES[(seed % 4) as usize];
        // In memory, where the system has that: syncing it takes no time.
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { dir: made.or_else(|_| tempfile::tempdir()).unwrap(), near_bytes }
    }

    /// Where they all are.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn near(&self, machine: usize) -> PathBuf {
        self.dir.path().join(machine.to_string())
    }
}

impl Machines for Disks {
    fn open(&self, machine: usize, objects: Objects) -> Arc<dyn Storage> {
        let Ok(Location::Store(url)) = Location::parse(&format!("s3://bucket/{PREFIX}")) else {
            panic!("it is a URL")
        };
        let bucket = Bucket::over(url, ClientOptions::default(), move |_, _, _| {
            Ok(Arc::new(SimulatedStore(objects.clone())))
        });
        let tier = self.near(machine);
        let (near, budget) = (Near::new(&tier, "store", MODULE), Budget::new(&tier, self.near_bytes));
        let folder = RemoteFolder::new(bucket, MODULE, near, budget, SPOOL_BYTES[machine % 2]);
        folder.resume();
        Arc::new(folder)
    }

    fn lose_disk(&self, machine: usize) {
        match fs::remove_dir_all(self.near(machine)) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }
}
