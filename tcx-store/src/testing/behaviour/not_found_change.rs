//! A change that a segment counts on and that is not found for a while: its rows are displaced by nothing.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::changes::Doomed;
use crate::storage::{Draft, FileInfo, Held, LocalStorage, Sealed, Stamp, Storage, System};
use crate::sys::mmap::Mapped;
use crate::testing::{compute, process, put, replace, spec, values};
use crate::{Options, RecomputeSession, Store};

/// A folder in which one name is not found for a while, neither listed nor looked up.
#[derive(Debug)]
struct Hiding {
    folder: LocalStorage<System>,
    name: String,
    hides: Arc<AtomicBool>,
}

impl Hiding {
    fn check(&self, name: &str) -> io::Result<()> {
        if self.hides.load(SeqCst) && name == self.name { Err(ErrorKind::NotFound.into()) } else { Ok(()) }
    }
}

impl Storage for Hiding {
    fn path(&self) -> &Path {
        self.folder.path()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.folder.list()?;
        names.retain(|name| !self.hides.load(SeqCst) || *name != self.name);
        Ok(names)
    }
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        self.folder.stamp()
    }
    fn map(&self, name: &str) -> io::Result<Mapped> {
        self.check(name)?;
        self.folder.map(name)
    }
    fn make(&self) -> io::Result<()> {
        self.folder.make()
    }
    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        self.folder.draft()
    }
    fn open(&self, name: &str) -> io::Result<Sealed> {
        self.check(name)?;
        self.folder.open(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.folder.sync()
    }
    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.check(name)?;
        self.folder.info(name)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }
    fn hold(&self) -> io::Result<Box<dyn Held>> {
        self.folder.hold()
    }
    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        self.folder.map_unnamed(bytes)
    }
}

fn without_name(dir: &Path, number: u64, hides: &Arc<AtomicBool>) -> Store {
    let (flush_interval, refresh_every) = (Duration::from_hours(1), Duration::ZERO);
    let options = Options { flush_interval, refresh_every, ..Options::default() };
    let folder = LocalStorage::new(dir.join("m_v1"), System);
    let storage = Hiding { folder, name: format!("change-{number:020}"), hides: hides.clone() };
    Store::with_storage(Arc::new(storage), spec(), &options).unwrap()
}

/// A segment is there and a change on which it counts is not found yet (a network file system, a copy that is not complete).
#[test]
fn no_value_is_put_over_one_whose_segment_counts_on_a_change_that_is_not_found_yet() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["v"], 1);
    store.flush().unwrap();
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
    assert_eq!(put(&store, "x", 1000).unwrap(), 1);
    store.flush().unwrap();
    let hides = Arc::new(AtomicBool::new(true));
    let other = without_name(dir.path(), 1, &hides);
    let done = put(&other, "x", 5);
    hides.store(false, SeqCst);
    other.flush().unwrap();
    other.compact().unwrap();
    assert!(done.is_err(), "{done:?}");
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}

#[test]
fn what_is_computed_while_a_change_is_not_found_does_not_displace_a_replacement_that_was_joined() {
    let dir = tempfile::tempdir().unwrap();
    let store = process(dir.path());
    compute(&store, &["x"], 1);
    store.flush().unwrap();
    replace(&store, &RecomputeSession::new(), &["x"], 1000);
    store.flush().unwrap();
    store.core.kill(Doomed::Keys(vec![b"z".as_slice().into()])).unwrap();
    compute(&store, &["w"], 3);
    store.flush().unwrap();
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    let hides = Arc::new(AtomicBool::new(true));
    let other = without_name(dir.path(), 2, &hides);
    // More rows than those of the segment: their run is the first in which others look.
    compute(&other, &["x", "a", "b", "c"], 7);
    let flushed = other.flush();
    hides.store(false, SeqCst);
    other.refresh().unwrap();
    other.compact().unwrap();
    assert!(flushed.is_err());
    assert_eq!(values(&process(dir.path()), &["x"]), [1000]);
}
