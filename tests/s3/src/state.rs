//! The objects of a server and what happened to them. Every change is one step.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::faults::{Faults, Operation};

/// An object.
#[derive(Clone, Debug)]
pub(crate) struct StoredObject {
    pub(crate) bytes: Bytes,
    pub(crate) modified: SystemTime,
    /// Another for each object that there was.
    pub(crate) tag: u64,
}

/// The requests that a server has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects and parts written, uploads begun and completed.
    pub puts: u64,
    /// Objects and parts of objects read.
    pub gets: u64,
    /// Objects asked for.
    pub heads: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Objects removed, uploads given up.
    pub deletes: u64,
}

impl Counts {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        let Self { puts, gets, heads, lists, deletes } = self;
        puts + gets + heads + lists + deletes
    }
}

/// Before a change: the object that had the key.
type Undo = (String, Option<StoredObject>);

/// How many changes a stale listing lacks.
const STALE: usize = 4;

#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<String, BTreeMap<i32, Bytes>>,
    last: Vec<Undo>,
    tags: u64,
    counts: Counts,
    /// Bytes of objects in answers.
    sent: u64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    contents: Mutex<Contents>,
    faults: Mutex<Faults>,
    dir: Option<PathBuf>,
    /// When the line is free, if it is not by now.
    line: Mutex<Option<Instant>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

/// A request that is being answered.
pub(crate) struct InFlight<'a>(&'a State);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    pub(crate) fn of_directory(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let state = Self { dir: Some(dir.to_owned()), ..Self::default() };
        for file in fs::read_dir(dir)? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(key) = name.strip_prefix("object-") {
                let mut contents = state.contents();
                contents.set(&key.replace("%2F", "/"), Some(fs::read(&path)?.into()));
            }
        }
        Ok(state)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something begins to be sent that takes so long; when it has arrived. It waits for what is being sent.
    pub(crate) fn send(&self, takes: Duration) -> Instant {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let until = line.map_or(now, |free| free.max(now)) + takes;
        *line = Some(until);
        until
    }

    pub(crate) fn begin(&self) -> InFlight<'_> {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        InFlight(self)
    }

    pub(crate) fn take_most_in_flight(&self) -> usize {
        self.most_in_flight.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.contents().counts
    }

    pub(crate) fn count(&self, operation: Operation) {
        let counts = &mut self.contents().counts;
        let counter = match operation {
            Operation::Put => &mut counts.puts,
            Operation::Get => &mut counts.gets,
            Operation::Head => &mut counts.heads,
            Operation::List => &mut counts.lists,
            Operation::Delete => &mut counts.deletes,
        };
        *counter += 1;
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.contents().sent += bytes as u64;
    }

    pub(crate) fn sent(&self) -> u64 {
        self.contents().sent
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.contents().objects.keys().cloned().collect()
    }

    /// All objects; as they were a few changes before if `is_stale`.
    pub(crate) fn objects(&self, is_stale: bool) -> BTreeMap<String, StoredObject> {
        let contents = self.contents();
        let mut objects = contents.objects.clone();
        for (key, before) in contents.last.iter().rev().filter(|_| is_stale) {
            match before {
                Some(before) => drop(objects.insert(key.clone(), before.clone())),
                None => drop(objects.remove(key)),
            }
        }
        objects
    }

    pub(crate) fn get(&self, key: &str) -> Option<StoredObject> {
        self.contents().objects.get(key).cloned()
    }

    pub(crate) fn put(&self, key: &str, bytes: Bytes) -> u64 {
        self.change(key, Some(bytes), false).unwrap_or_default()
    }

    /// `None` if there is one already.
    pub(crate) fn create(&self, key: &str, bytes: Bytes) -> Option<u64> {
        self.change(key, Some(bytes), true)
    }

    pub(crate) fn remove(&self, key: &str) {
        self.change(key, None, false);
    }

    fn change(&self, key: &str, bytes: Option<Bytes>, must_be_absent: bool) -> Option<u64> {
        let mut contents = self.contents();
        if must_be_absent && contents.objects.contains_key(key) {
            return None;
        }
        if let Some(dir) = &self.dir {
            keep(dir, key, bytes.as_deref()).expect("the directory of the server can be written");
        }
        Some(contents.set(key, bytes))
    }

    pub(crate) fn begin_upload(&self) -> String {
        let mut contents = self.contents();
        contents.tags += 1;
        let id = format!("upload-{}", contents.tags);
        contents.uploads.insert(id.clone(), BTreeMap::new());
        id
    }

    /// `false` if there is no such upload.
    pub(crate) fn add_part(&self, id: &str, number: i32, bytes: Bytes) -> bool {
        let mut contents = self.contents();
        contents.uploads.get_mut(id).map(|parts| parts.insert(number, bytes)).is_some()
    }

    /// The parts of an upload, which ends.
    pub(crate) fn end_upload(&self, id: &str) -> Option<Bytes> {
        let parts = self.contents().uploads.remove(id)?;
        Some(parts.into_values().collect::<Vec<Bytes>>().concat().into())
    }

    pub(crate) fn open_uploads(&self) -> usize {
        self.contents().uploads.len()
    }
}

impl Contents {
    fn set(&mut self, key: &str, bytes: Option<Bytes>) -> u64 {
        self.tags += 1;
        let tag = self.tags;
        let object = bytes.map(|bytes| StoredObject { bytes, modified: SystemTime::now(), tag });
        let before = match object {
            Some(object) => self.objects.insert(key.to_owned(), object),
            None => self.objects.remove(key),
        };
        self.last.push((key.to_owned(), before));
        let too_many = self.last.len().saturating_sub(STALE);
        self.last.drain(..too_many);
        tag
    }
}

/// Under another name first: a server that is killed leaves no part of an object.
fn keep(dir: &Path, key: &str, bytes: Option<&[u8]>) -> io::Result<()> {
    let path = dir.join(format!("object-{}", key.replace('/', "%2F")));
    match bytes {
        Some(bytes) => {
            let new = dir.join("new");
            fs::write(&new, bytes)?;
            fs::rename(new, path)
        }
        None => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
    }
}
