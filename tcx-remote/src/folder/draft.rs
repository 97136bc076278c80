//! A file that is being written: in the near tier, and sent once it has its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tcx_store::unstable::Draft;

use super::Inner;
use super::fetch::{is_full, seal};
use crate::copy::files::{Kind, kind};

pub(super) struct RemoteDraft {
    folder: Arc<Inner>,
    /// `None` once the file has its name.
    path: Option<PathBuf>,
    file: File,
    is_synced: bool,
    /// The history that was known before anything was written: what is written later belongs to it, whatever this process learns until the
    /// file has its name. `None` if none was known.
    origin: Option<String>,
}

impl RemoteDraft {
    pub(super) fn new(folder: Arc<Inner>) -> io::Result<Self> {
        let origin = folder.origin().ok();
        let (path, file) = folder.near.create_temporary()?;
        Ok(Self { folder, path: Some(path), file, is_synced: false, origin })
    }
}

/// If the disk is full, copies make room for so much at the least: each of them has to be received again.
const ROOM: u64 = 64 << 20;

impl Write for RemoteDraft {
    /// Rows that are computed have priority over copies of objects.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_synced = false;
        match self.file.write(bytes) {
            Err(error) if is_full(&error) && self.folder.make_room(bytes.len() as u64) => {
                self.file.write(bytes)
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for RemoteDraft {
    fn sync(&mut self) -> io::Result<()> {
        if let Err(error) = self.file.sync_all() {
            // Another try of this file could succeed though bytes of it are lost. The rows are written again.
            if is_full(&error) {
                self.folder.make_room(0);
            }
            return Err(error);
        }
        self.is_synced = true;
        Ok(())
    }

    fn publish(mut self: Box<Self>, name: &str, _durable: bool) -> io::Result<()> {
        let path = self.path.clone().ok_or(ErrorKind::NotFound)?;
        match kind(name) {
            Some(Kind::Run) => fs::rename(path, self.folder.near.file(name))?,
            Some(Kind::Segment) => {
                if !self.is_synced {
                    self.sync()?;
                }
                seal(&self.file);
                let origin = self.origin.take().map_or_else(|| self.folder.origin(), Ok)?;
                self.folder.publish(&path, &origin, name)?;
            }
            _ => return Err(ErrorKind::Unsupported.into()),
        }
        self.path = None;
        Ok(())
    }

    fn create(mut self: Box<Self>, name: &str) -> io::Result<bool> {
        let mut bytes = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut bytes)?;
        self.folder.create(name, &bytes, self.origin.take())
    }
}

impl Inner {
    /// Whether there is more room on the disk of the near tier than before.
    fn make_room(&self, bytes: u64) -> bool {
        let made = self.budget.make_room(bytes.max(ROOM)).unwrap_or(false);
        tracing::debug!(near = %self.near.dir().display(), made, "the disk is full: copies are removed");
        made
    }
}

impl Drop for RemoteDraft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It may have its name by now, or wait in the spool.
            let _ = fs::remove_file(path);
        }
    }
}
