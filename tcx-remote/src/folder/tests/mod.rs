//! The folder of a module on a test server: what happens between two requests, or while another process holds a lock.

mod changes;
mod learned;
mod merged;
mod spool;

use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::Storage;
use tcx_store::{ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};
use tcx_test_s3::{Fault, Operation, Server};
use tempfile::TempDir;

use super::RemoteFolder;
use super::sending::SENDERS;
use crate::bucket::Bucket;
use crate::cache::RemoteCache;
use crate::copy::files::change;
use crate::near::budget::Budget;
use crate::near::{Near, Spooled};
use crate::options::ClientOptions;
use crate::url::{Location, StoreUrl};

const MODULE: &str = "m_v1";

pub(super) fn segment(number: u8) -> String {
    format!("seg-{number:032x}-{number:016x}.arrow")
}

pub(super) fn key(name: &str) -> String {
    format!("p/{MODULE}/{name}")
}

fn place(server: &Server) -> (StoreUrl, ClientOptions) {
    let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
    let set = |options: ClientOptions, (name, value)| options.set(name, value);
    let options = ClientOptions::default().deadline(Duration::from_secs(20));
    (url, server.settings().into_iter().fold(options, set))
}

/// The folder as a machine has it that has read these changes.
pub(super) fn folder(server: &Server, changes: &[u64]) -> (TempDir, RemoteFolder) {
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
pub(super) fn machine(server: &Server) -> (TempDir, Arc<Store>) {
    let tier = tempfile::tempdir().unwrap();
    let (url, options) = place(server);
    let output = ColumnType::Dense { dtype: DType::I64, shape: &[1] };
    let spec = Spec::new(MODULE, KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let store = RemoteCache::new(url, tier.path(), options).unwrap();
    let store = store.open(spec, &Options::default()).unwrap();
    (tier, store)
}

/// Another machine invalidates rows, by `changes` changes.
pub(super) fn invalidate(server: &Server, changes: i64) {
    let (_tier, store) = machine(server);
    (0..changes).for_each(|id| store.invalidate(&Keys::ints([id], 0)).unwrap());
}

pub(super) fn has(server: &Server, name: &str) -> bool {
    server.object(&key(name)).is_some()
}

/// Waits until all faults that were planned have begun.
pub(super) fn wait_for_planned(server: &Server) {
    while server.planned() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// From now on no thread of this folder sends by itself what comes to wait.
pub(super) fn stop_senders(folder: &RemoteFolder) {
    folder.0.state(|state| state.departures.senders = SENDERS).unwrap();
}

/// A segment of this folder that waits.
pub(super) fn wait_to_send(folder: &RemoteFolder, name: &str) -> Spooled {
    let mut draft = folder.draft().unwrap();
    draft.write_all(b"rows").unwrap();
    draft.publish(name, true).unwrap();
    folder.0.near.spooled().unwrap().pop().unwrap()
}

fn deny_segments(server: &Server) {
    (0..100).for_each(|_| server.fail_next(Operation::Put, "/seg-", Fault::Denied));
}
