//! Receiving files: each once for all processes of the machine, and verified before it has its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tcx_store::unstable::{Mapped, runtime, verify_file};

use super::Inner;
use crate::near::lock::lock;

/// Files in flight together; long ones are received in ranges that are in flight together as well.
const FILES_IN_FLIGHT: usize = 8;

/// A file that is removed unless it gets its name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Inner {
    /// The bytes of a segment: of the copy, of the one that waits to be sent, or of the object, which is received first.
    pub(super) fn map_segment(&self, name: &str) -> io::Result<Mapped> {
        let copy = self.near.file(name);
        // A segment goes from the spool to the copies, never back.
        for path in
            [Some(copy.clone()), self.near.find_spooled(name), Some(copy.clone())].into_iter().flatten()
        {
            match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                file => return Mapped::new(&file?),
            }
        }
        let listed = self.state(|state| state.listed.get(name).map(|(bytes, _)| *bytes))?;
        let bytes = match listed {
            Some(bytes) => Some(bytes),
            None => self.ask(|bucket| bucket.head(&self.key(name)))?.map(|object| object.bytes),
        };
        self.fetch_to(name, bytes.ok_or(ErrorKind::NotFound)?, &copy)
    }

    /// Receives an object, verifies it and gives the copy its name. One that is damaged twice gets no name: what reads it sees the damage.
    pub(super) fn fetch_to(&self, name: &str, bytes: u64, to: &Path) -> io::Result<Mapped> {
        self.near.make()?;
        let file_name = to.file_name().and_then(|name| name.to_str()).unwrap_or(name);
        let _alone = lock(&self.near.lock(file_name))?;
        if let Ok(file) = File::open(to) {
            // Another process was faster.
            return Mapped::new(&file);
        }
        let mut is_last = false;
        loop {
            let (path, file) = self.near.create_temporary()?;
            let (temporary, file) = (Temporary(path), Arc::new(file));
            self.check_time()?;
            if !self.send(|bucket| bucket.download(&self.key(name), bytes, &file))? {
                return Err(ErrorKind::NotFound.into());
            }
            let map = Mapped::new(&file)?;
            match verify_file(name, &map) {
                Ok(()) => {
                    // A name must not outlive a power loss without the bytes.
                    file.sync_all()?;
                    seal(&file);
                    fs::rename(&temporary.0, to)?;
                    std::mem::forget(temporary);
                    return Ok(map);
                }
                Err(what) => {
                    tracing::warn!(object = %self.path().join(name).display(), "received damaged: {what}");
                }
            }
            if std::mem::replace(&mut is_last, true) {
                return Ok(map);
            }
        }
    }

    /// Receives segments that are not here, several at a time. What fails is tried again when it is opened.
    pub(super) fn fetch_all(&self, names: &[String]) {
        let missing: Vec<_> = names
            .iter()
            .filter(|name| !self.near.file(name).exists() && self.near.find_spooled(name).is_none())
            .collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(name) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if self.map_segment(name).is_err() && self.reach.is_away() {
                    break;
                }
            }
        };
        if runtime::is_simulated() {
            work();
        } else if missing.len() > 1 {
            // A single one is received by what opens it.
            std::thread::scope(|scope| {
                for _ in 0..missing.len().min(FILES_IN_FLIGHT) {
                    scope.spawn(work);
                }
            });
        }
    }
}

/// Makes a file read-only, as tcx leaves its files. A courtesy; some file systems refuse it.
pub(super) fn seal(file: &File) {
    if let Ok(metadata) = file.metadata() {
        let mut permissions = metadata.permissions();
        permissions.set_readonly(true);
        let _ = file.set_permissions(permissions);
    }
}
