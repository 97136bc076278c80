//! Segments of which there is no copy: what is wanted of them is read in the store.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tcx_store::unstable::{Mapped, Parts, ReadAt, Sealed, runtime};

use super::reach::is_away;
use super::windows::Windows;
use super::{Inner, PROBE, SHORT};

/// The store is not asked again within this time for a segment that it does not have: a lookup would ask for each of its rows.
const GONE_FOR: Duration = Duration::from_secs(1);

/// A segment in the store.
#[derive(Debug)]
struct FarFile {
    folder: Arc<Inner>,
    name: String,
    bytes: usize,
}

impl ReadAt for FarFile {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        let range = at..at.checked_add(bytes.len()).ok_or(ErrorKind::UnexpectedEof)?;
        if range.end > self.bytes {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let plan = self.folder.windows(|windows| match windows.find(&self.name, &range) {
            Some(found) => {
                bytes.copy_from_slice(found);
                None
            }
            None => Some(windows.plan(&self.name, &range, self.bytes)),
        })?;
        let Some(plan) = plan else { return Ok(()) };
        let (start, wanted) = (plan.start, Parts { name: self.name.clone(), ranges: vec![plan] });
        let read = self.folder.read_parts(&[wanted]).pop().and_then(|mut parts| parts.pop());
        let read = read.unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()))?;
        let own = read.get(range.start - start..range.end - start).ok_or(ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(own);
        self.folder.windows(|windows| windows.add(&self.name, start, read))
    }

    fn is_far(&self) -> bool {
        true
    }

    fn forget(&self) {
        let _ = self.folder.windows(|windows| windows.forget(&self.name));
    }
}

impl Inner {
    /// A segment: mapped if its bytes are on this machine, else as it is in the store.
    pub(super) fn open_segment(self: &Arc<Self>, name: &str) -> io::Result<Sealed> {
        if let Some(file) = self.local(name)? {
            return Mapped::new(&file).map(Sealed::Mapped);
        }
        let bytes = usize::try_from(self.length(name)?).map_err(io::Error::other)?;
        Ok(Sealed::Read(Box::new(FarFile { folder: self.clone(), name: name.to_owned(), bytes })))
    }

    /// Whether a segment is in the store, or waits to be sent. A copy says nothing: it stays for a while when the object is removed.
    pub(super) fn is_segment_there(&self, name: &str) -> io::Result<bool> {
        // Asked for in this order: it is in the store before it leaves the spool.
        if self.near.find_spooled(name).is_some() {
            return Ok(true);
        }
        self.ask(|bucket| bucket.head(&self.key(name))).map(|found| found.is_some())
    }

    /// Whether the bytes of a segment are on this machine.
    pub(super) fn is_here(&self, name: &str) -> bool {
        self.near.file(name).exists() || self.near.find_spooled(name).is_some()
    }

    /// Parts of segments: of a copy that has come in the meantime, or in the store.
    pub(super) fn read_parts(&self, wanted: &[Parts]) -> Vec<Vec<io::Result<Vec<u8>>>> {
        let mut read: Vec<Option<Vec<_>>> = wanted.iter().map(|parts| self.read_here(parts)).collect();
        let is_far = |(_, read): &(&Parts, &Option<Vec<_>>)| read.is_none();
        let far: Vec<&Parts> = wanted.iter().zip(&read).filter(is_far).map(|(parts, _)| parts).collect();
        if !far.is_empty() {
            let found = self.read_there(&far).unwrap_or_else(|error| all_failed(&far, &error));
            for (read, found) in read.iter_mut().filter(|read| read.is_none()).zip(found) {
                *read = Some(found);
            }
        }
        read.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Parts of a segment that is here, or is known to be nowhere.
    fn read_here(&self, parts: &Parts) -> Option<Vec<io::Result<Vec<u8>>>> {
        if let Ok(Some(file)) = self.local(&parts.name) {
            return Some(parts.ranges.iter().map(|range| read_file(&file, range)).collect());
        }
        let gone = self.state(|state| state.gone.get(&parts.name).copied()).ok().flatten();
        let is_gone = gone.is_some_and(|since| runtime::now().duration_since(since) < GONE_FOR);
        is_gone.then(|| parts.ranges.iter().map(|_| Err(ErrorKind::NotFound.into())).collect())
    }

    fn read_there(&self, far: &[&Parts]) -> io::Result<Vec<Vec<io::Result<Vec<u8>>>>> {
        self.check_time()?;
        let bytes = |range: &Range<usize>| range.start as u64..range.end as u64;
        let wanted: Vec<(String, Vec<Range<u64>>)> = far
            .iter()
            .map(|parts| (self.key(&parts.name), parts.ranges.iter().map(bytes).collect()))
            .collect();
        let longest = if self.reach.is_away() { PROBE } else { SHORT };
        let read = self.bucket.with_deadline(self.bucket.deadline().min(longest)).read_parts(&wanted)?;
        self.far_reads.fetch_add(read.requests, Ordering::Relaxed);
        self.far_bytes.fetch_add(read.bytes, Ordering::Relaxed);
        let errors = || read.parts.iter().flatten().filter_map(|part| part.as_ref().err());
        // One that has failed says nothing of the store if others have not.
        let has_answered =
            read.parts.iter().flatten().any(|part| part.as_ref().is_ok_and(|read| !read.is_empty()));
        let away = errors().find(|error| is_away(error)).filter(|_| !has_answered);
        self.reach.note(&away.map_or(Ok(()), |error| Err(io::Error::from(error.kind()))));
        for (parts, read) in far.iter().zip(&read.parts) {
            let is_gone = |read: &io::Result<_>| {
                read.as_ref().is_err_and(|error: &io::Error| error.kind() == ErrorKind::NotFound)
            };
            if read.iter().any(is_gone) {
                let before = self.state(|state| state.gone.insert(parts.name.clone(), runtime::now()))?;
                // The next lookup that misses rows lists the folder, once.
                self.vanished.fetch_add(u64::from(before.is_none()), Ordering::Relaxed);
            }
        }
        Ok(read.parts)
    }

    fn windows<T>(&self, look: impl FnOnce(&mut Windows) -> T) -> io::Result<T> {
        let windows = self.windows.get(|| Ok(Mutex::default()))?;
        let mut windows = windows.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(look(&mut windows))
    }
}

fn all_failed(far: &[&Parts], error: &io::Error) -> Vec<Vec<io::Result<Vec<u8>>>> {
    let failed = |parts: &&Parts| {
        parts.ranges.iter().map(|_| Err(io::Error::new(error.kind(), error.to_string()))).collect()
    };
    far.iter().map(failed).collect()
}

#[cfg(unix)]
fn read_file(file: &File, range: &Range<usize>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; range.len()];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, range.start as u64)?;
    Ok(bytes)
}

#[cfg(windows)]
fn read_file(file: &File, range: &Range<usize>) -> io::Result<Vec<u8>> {
    let map = Mapped::new(file)?;
    map.get(range.clone()).map(<[u8]>::to_vec).ok_or_else(|| ErrorKind::UnexpectedEof.into())
}
