//! A file that is being written: in the near tier, and sent once it has its name.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tcx_store::unstable::Draft;

use super::Inner;
use super::fetch::seal;
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

impl Write for RemoteDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_synced = false;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Draft for RemoteDraft {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
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

impl Drop for RemoteDraft {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // It may have its name by now, or wait in the spool.
            let _ = fs::remove_file(path);
        }
    }
}
