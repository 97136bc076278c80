//! The files of one module in a store, as the engine sees them: through copies in the near tier.
//!
//! - **Segments** have names of their own, and their content never changes. A copy is as good as the object, so each is received once. As
//!   long as there is no copy, what is wanted of a segment is read in the store.
//! - **Changes** decide which rows are right. A copy counts only if the store says that the object is the same, by its tag, at each look.
//! - **New segments** go to the spool first, where they are durable, and are sent from there. While the store is away they stay there.
//! - **Index runs** stay in the near tier: they are derived from segments.
//! - **Leases** are only in the store: all machines read and write them, and they change.

mod changes;
mod draft;
mod far;
mod fetch;
mod held;
mod listing;
mod looks;
mod reach;
mod receiving;
mod refused;
mod sending;
mod shared;
mod spool;
mod storage;
mod strays;
#[cfg(test)]
mod tests;
mod unsound;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tcx_store::unstable::{FileInfo, Stamp, runtime};

use self::changes::KnownChange;
use self::looks::Looks;
use self::reach::Reach;
use self::receiving::Arrivals;
use self::refused::Refused;
use self::sending::Departures;
use self::strays::Stray;
use self::unsound::Unsound;
use self::windows::Windows;
use crate::bucket::{Bucket, Object};
use crate::client::runtime::PerProcess;
use crate::near::Near;
use crate::near::budget::Budget;

/// The longest time of a request that moves few bytes: a lookup may wait for it.
const SHORT: Duration = Duration::from_secs(10);

/// The same, if the last request has failed.
const PROBE: Duration = Duration::from_secs(2);

/// One module. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct RemoteFolder(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    bucket: Bucket,
    module: String,
    /// What messages call it.
    path: PathBuf,
    near: Near,
    budget: Budget,
    spool_bytes: u64,
    reach: Reach,
    /// Whether a thread sends what waits.
    is_sending: AtomicBool,
    state: PerProcess<Mutex<State>>,
    windows: PerProcess<Mutex<Windows>>,
    /// How often a segment could not be found that was read in the store.
    vanished: AtomicU64,
    /// Requests for parts of segments, and the bytes of these.
    far_reads: AtomicU64,
    far_bytes: AtomicU64,
    /// Whether large segments that are not here are received, beside what is read of them in the store.
    receives: bool,
}

/// What this process knows of the objects.
#[derive(Debug, Default)]
struct State {
    /// The last listing.
    listed: BTreeMap<String, (u64, SystemTime)>,
    /// What is known to be so at this moment, and need not be asked again.
    looks: Looks,
    /// The changes that were looked at, as they were then.
    changes: BTreeMap<String, KnownChange>,
    /// Changes that this process has created, or may have created, and may have to take back.
    strays: Vec<Stray>,
    /// How many of those that it has created a thread compares now.
    comparing: usize,
    /// Segments that this process has put into the spool.
    own: BTreeSet<String>,
    /// The segments of other processes that waited at the last listing: rows may have been found in them.
    shown: BTreeSet<String>,
    /// Those that have vanished before they were sent, until a caller has got the error.
    lost: BTreeSet<String>,
    /// Whether the store is known to create objects conditionally.
    is_probed: bool,
    /// When the near tier was cleaned last.
    cleaned: Option<Instant>,
    /// What is being sent.
    departures: Departures,
    /// What is to be received.
    arrivals: Arrivals,
    /// Segments that wait, and are not of the module that the store has.
    refused: HashMap<String, Refused>,
    /// The histories of such segments, and when the store was found to have another module.
    refused_origins: HashMap<String, Instant>,
    /// Segments that the store did not have when they were read there.
    gone: HashMap<String, Instant>,
    /// Those of which no sound copy can be made.
    unsound: HashMap<String, Unsound>,
}

impl RemoteFolder {
    pub(crate) fn new(bucket: Bucket, module: &str, near: Near, budget: Budget, spool_bytes: u64) -> Self {
        Self(Arc::new(Inner::new(bucket, module, near, budget, spool_bytes)))
    }

    /// A module of which only what is wanted is read: large segments that are not here are not received.
    pub(crate) fn in_place(bucket: Bucket, module: &str, near: Near, budget: Budget) -> Self {
        Self(Arc::new(Inner { receives: false, ..Inner::new(bucket, module, near, budget, 0) }))
    }
}

impl Inner {
    fn new(bucket: Bucket, module: &str, near: Near, budget: Budget, spool_bytes: u64) -> Self {
        Self {
            path: PathBuf::from(format!("{}/{module}", bucket.url())),
            module: module.to_owned(),
            bucket,
            near,
            budget,
            spool_bytes,
            reach: Reach::new(),
            is_sending: AtomicBool::new(false),
            state: PerProcess::new(),
            windows: PerProcess::new(),
            vanished: AtomicU64::new(0),
            far_reads: AtomicU64::new(0),
            far_bytes: AtomicU64::new(0),
            receives: true,
        }
    }

    /// The name of an object under the prefix of the cache.
    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.module)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> io::Result<T> {
        let state = self.state.get(|| Ok(Mutex::default()))?;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(look(&mut state))
    }

    /// A short request, unless the last one has just failed.
    fn ask<T>(&self, request: impl FnOnce(&Bucket) -> io::Result<T>) -> io::Result<T> {
        self.check_time()?;
        let longest = if self.reach.is_away() { PROBE } else { SHORT };
        self.send(|bucket| request(&bucket.with_deadline(bucket.deadline().min(longest))))
    }

    /// Any request, now.
    fn send<T>(&self, request: impl FnOnce(&Bucket) -> io::Result<T>) -> io::Result<T> {
        self.noted(request(&self.bucket))
    }

    /// An answer of the store.
    fn noted<T>(&self, answer: io::Result<T>) -> io::Result<T> {
        self.reach.note(&answer);
        answer
    }

    fn check_time(&self) -> io::Result<()> {
        if self.reach.is_time() {
            return Ok(());
        }
        let what = format!("{} could not be reached a moment ago; trying again soon", self.bucket.url());
        Err(io::Error::new(ErrorKind::NotConnected, what))
    }
}

/// Whether the store counts as away after this error of a request.
#[cfg(test)]
pub(crate) fn is_taken_for_away(error: io::Error) -> bool {
    let reach = Reach::new();
    reach.note::<()>(&Err(error));
    reach.is_away()
}

/// What the store says of an object.
fn info_of(object: &Object) -> FileInfo {
    info(object.bytes, object.modified, object.tag.as_deref())
}

fn info(bytes: u64, modified: SystemTime, tag: Option<&str>) -> FileInfo {
    let age = runtime::wall().duration_since(modified).unwrap_or_default();
    let inode = tag
        .unwrap_or_default()
        .bytes()
        .fold(0_u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte)));
    FileInfo { bytes, age, stamp: Stamp { modified, inode } }
}
