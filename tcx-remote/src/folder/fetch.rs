//! Receiving files: each once for all processes of the machine, and verified before it has its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tcx_store::unstable::{Mapped, directory, runtime, verify_file};

use super::{Inner, SHORT};
use crate::bucket::Bucket;
use crate::near::budget::Admitted;
use crate::near::lock::{Attempt, lock, lock_within, try_lock};

/// Files in flight together; long ones are received in ranges that are in flight together as well.
const FILES_IN_FLIGHT: usize = 8;

/// Segments of at most this length are received before the listing that shows them returns: to open one of them in the store takes as long.
pub(super) const SMALL: u64 = 1 << 20;

/// So long a lookup waits for another process that receives what it needs.
const A_MOMENT: Duration = Duration::from_secs(2);

/// A file that is removed unless it gets its name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What became of an attempt to receive a segment.
pub(super) enum Received {
    /// Its copy is there. Or it arrived damaged twice, and what reads this sees the damage.
    Here(Mapped),
    /// The near tier has no room for it.
    NoRoom,
    /// Another process receives it now, or another thread, or another one counts what there is room for.
    Busy,
}

impl Inner {
    /// The copy of a segment on this machine, or the one that waits to be sent.
    pub(super) fn local(&self, name: &str) -> io::Result<Option<File>> {
        let copy = self.near.file(name);
        // A segment goes from the spool to the copies, never back.
        for path in [Some(copy.clone()), self.near.find_spooled(name), Some(copy)].into_iter().flatten() {
            match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                file => return file.map(Some),
            }
        }
        Ok(None)
    }

    /// The length of a segment in the store.
    pub(super) fn length(&self, name: &str) -> io::Result<u64> {
        let listed = self.state(|state| state.listed.get(name).map(|(bytes, _)| *bytes))?;
        let bytes = match listed {
            Some(bytes) => Some(bytes),
            None => self.ask(|bucket| bucket.head(&self.key(name)))?.map(|object| object.bytes),
        };
        bytes.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// All bytes of a segment: of the copy, of the one that waits to be sent, or of the object, which is received first. If there is no
    /// room for it, it is in a file without a name.
    pub(super) fn map_segment(&self, name: &str) -> io::Result<Mapped> {
        if let Some(file) = self.local(name)? {
            return Mapped::new(&file);
        }
        let bytes = self.length(name)?;
        let alone = lock(&self.lock_of(name)?)?;
        if let Received::Here(map) = self.receive_alone(name, bytes, &self.bucket)? {
            return Ok(map);
        }
        drop(alone);
        self.in_memory(name, bytes, None)
    }

    /// Receives a segment whose copy is not there, unless another process does.
    pub(super) fn receive(&self, name: &str, bytes: u64, bucket: &Bucket) -> io::Result<Received> {
        match try_lock(&self.lock_of(name)?)? {
            Attempt::Own(_alone) => self.receive_alone(name, bytes, bucket),
            Attempt::Busy => Ok(Received::Busy),
        }
    }

    pub(super) fn lock_of(&self, name: &str) -> io::Result<PathBuf> {
        self.near.make()?;
        Ok(self.near.lock(name))
    }

    fn receive_alone(&self, name: &str, bytes: u64, bucket: &Bucket) -> io::Result<Received> {
        if let Some(file) = self.local(name)? {
            // Another process was faster.
            return Mapped::new(&file).map(Received::Here);
        }
        let mut is_last = false;
        loop {
            let admitted = self.budget.admit(bytes, || self.near.create_arriving(name, bytes))?;
            let (path, file) = match admitted {
                Admitted::Made(made) => made,
                Admitted::NoRoom => return Ok(Received::NoRoom),
                Admitted::Busy => return Ok(Received::Busy),
            };
            let received = self.receive_to((name, bytes, None), bucket, (Temporary(path), file), &|from| {
                self.budget.name(|| fs::rename(from, self.near.file(name)))
            });
            if !matches!(received, Ok((_, None))) {
                self.budget.changed();
            }
            let (map, damage) = received.inspect_err(|error| self.note_failed(name, error))?;
            if damage.is_none() || std::mem::replace(&mut is_last, true) {
                damage.inspect(|what| self.note_damaged(name, what));
                return Ok(Received::Here(map));
            }
        }
    }

    /// Receives an object to a file, and says what is damaged, if anything is. The file gets its name unless it is.
    fn receive_to(
        &self,
        (name, bytes, tag): (&str, u64, Option<&str>),
        bucket: &Bucket,
        (temporary, file): (Temporary, File),
        rename: &dyn Fn(&Path) -> io::Result<()>,
    ) -> io::Result<(Mapped, Option<String>)> {
        let file = Arc::new(file);
        self.check_time()?;
        if !self.noted(bucket.download_tagged(&self.key(name), bytes, tag, &file))? {
            return Err(ErrorKind::NotFound.into());
        }
        let map = Mapped::new(&file)?;
        if let Err(what) = verify_file(name, &map) {
            tracing::debug!(object = %self.path().join(name).display(), "received damaged: {what}");
            return Ok((map, Some(what)));
        }
        // A name must not outlive a power loss without the bytes.
        file.sync_all()?;
        seal(&file);
        rename(&temporary.0)?;
        std::mem::forget(temporary);
        Ok((map, None))
    }

    /// Receives a change, verifies it and gives the copy its name. One that is damaged twice gets no name: what reads it sees the damage.
    /// So does one for which the disk has no room, and is not kept.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind `StaleNetworkFileHandle` if `object` is not the one any more that has this tag, and others if the store
    /// or the near tier cannot be reached.
    pub(super) fn fetch_to(
        &self,
        name: &str,
        bytes: u64,
        tag: Option<&str>,
        to: &Path,
    ) -> io::Result<Mapped> {
        self.near.make()?;
        let file_name = to.file_name().and_then(|name| name.to_str()).unwrap_or(name);
        // A lookup may wait for it: another process that is stopped is not waited for long.
        let _alone = lock_within(&self.near.lock(file_name), A_MOMENT)?;
        let bucket = self.bucket.with_deadline(self.bucket.deadline().min(SHORT));
        if let Ok(file) = File::open(to) {
            // Another process was faster.
            return Mapped::new(&file);
        }
        let mut is_last = false;
        loop {
            let (path, file) = self.near.create_temporary()?;
            let rename = |from: &Path| fs::rename(from, to);
            let (map, damage) =
                match self.receive_to((name, bytes, tag), &bucket, (Temporary(path), file), &rename) {
                    Err(error) if is_full(&error) => return self.in_memory(name, bytes, tag),
                    received => received?,
                };
            if let Some(what) = damage.as_ref().filter(|_| is_last) {
                tracing::warn!(object = %self.path().join(name).display(), "received damaged twice: {what}");
            }
            if damage.is_none() || std::mem::replace(&mut is_last, true) {
                return Ok(map);
            }
        }
    }

    /// An object without a copy.
    fn in_memory(&self, name: &str, bytes: u64, tag: Option<&str>) -> io::Result<Mapped> {
        self.check_time()?;
        let read = self.send(|bucket| bucket.read_tagged(&self.key(name), 0..bytes, tag))?;
        directory(self.near.dir().to_owned()).map_unnamed(&read.ok_or(ErrorKind::NotFound)?)
    }

    /// Receives small segments that are not here, several at a time. What fails is read in the store.
    pub(super) fn receive_all(&self, missing: &[(String, u64)]) {
        let next = AtomicUsize::new(0);
        // A lookup waits for them.
        let bucket = self.bucket.with_deadline(self.bucket.deadline().min(SHORT));
        let work = || {
            while let Some((name, bytes)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                // It takes another process a moment: what it receives is not asked for again.
                let receive = |alone| match alone {
                    Attempt::Own(_alone) => self.receive_alone(name, *bytes, &bucket),
                    Attempt::Busy => Ok(Received::Busy),
                };
                let alone = self.lock_of(name).and_then(|path| lock_within(&path, A_MOMENT));
                match alone.and_then(receive) {
                    Err(_) if self.reach.is_away() => break,
                    Err(error) => tracing::debug!(segment = %name, "not received: {error}"),
                    Ok(_) => {}
                }
            }
        };
        if runtime::is_simulated() {
            return work();
        }
        std::thread::scope(|scope| {
            for _ in 1..missing.len().min(FILES_IN_FLIGHT) {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// Whether the disk of the near tier has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Makes a file read-only, as tcx leaves its files. A courtesy; some file systems refuse it.
pub(super) fn seal(file: &File) {
    if let Ok(metadata) = file.metadata() {
        let mut permissions = metadata.permissions();
        permissions.set_readonly(true);
        let _ = file.set_permissions(permissions);
    }
}
