//! The folder of a module on a test server: what happens between two requests, or while another process holds a lock.

mod changes;
mod spool;

use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::Storage;
use tcx_store::{ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::TempDir;

use super::RemoteFolder;
use crate::bucket::Bucket;
use crate::cache::RemoteCache;
use crate::copy::files::change;
use crate::near::Near;
use crate::near::budget::Budget;
use crate::options::ClientOptions;
use crate::url::{Location, StoreUrl};

const MODULE: &str = "m_v1";

fn segment(number: u8) -> String {
    format!("seg-{number:032x}-{number:016x}.arrow")
}

fn key(name: &str) -> String {
    format!("p/{MODULE}/{name}")
}

fn place(server: &Server) -> (StoreUrl, ClientOptions) {
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    let options = ClientOptions::default().deadline(Duration::from_secs(20));
    (url, server.settings().into_iter().fold(options, set))
}

/// The folder as a machine has it that has read these changes.
fn folder(server: &Server, changes: &[u64]) -> (TempDir, RemoteFolder) {
    let tier = tempfile::tempdir().unwrap();
    let (url, options) = place(server);
    let (near, budget) = (Near::new(tier.path(), "store", MODULE), Budget::new(tier.path(), None));
    let folder = RemoteFolder::new(Bucket::new(url, options).unwrap(), MODULE, near, budget, 1 << 30);
    for number in changes {
        folder.map(&change(*number)).unwrap();
    }
    (tier, folder)
}

/// Another machine, which makes the module if it does not exist.
fn machine(server: &Server) -> (TempDir, Arc<Store>) {
    let tier = tempfile::tempdir().unwrap();
    let (url, options) = place(server);
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[1] };
    let spec = Spec::new(MODULE, KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let store = RemoteCache::new(url, tier.path(), options).unwrap();
    let store = store.open(spec, &Options::default()).unwrap();
    (tier, store)
}

/// Another machine invalidates rows, by `changes` changes.
fn invalidate(server: &Server, changes: i64) {
    let (_tier, store) = machine(server);
    (0..changes).for_each(|id| store.invalidate(&Keys::ints([id], 0)).unwrap());
}

fn has(server: &Server, name: &str) -> bool {
    server.object(&key(name)).is_some()
}

fn deny_segments(server: &Server) {
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
}
