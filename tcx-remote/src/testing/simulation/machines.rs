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
use crate::options::ClientOptions;
use crate::url::Location;

const MODULE: &str = "m_v1";

/// What may wait on a machine: on every other one, little.
const SPOOL_BYTES: [u64; 2] = [1 << 30, 12_000];

/// A near tier for each machine.
pub(super) struct Disks(TempDir);

impl Disks {
    pub(super) fn new() -> Self {
        // In memory, where the system has that: syncing it takes no time.
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(made.or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn near(&self, machine: usize) -> PathBuf {
        self.0.path().join(machine.to_string())
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
        let near = Near::new(&self.near(machine), "store", MODULE);
        let folder = RemoteFolder::new(bucket, MODULE, near, SPOOL_BYTES[machine % 2]);
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
