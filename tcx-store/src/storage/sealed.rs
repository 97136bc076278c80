//! Sealed files, mapped or read piece by piece.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::operations::FileOperations;
use crate::sys::mmap::Mapped;

/// A sealed file.
#[derive(Debug)]
pub enum Sealed {
    /// All of its bytes are mapped.
    Mapped(Mapped),
    /// They are read when they are wanted.
    Read(Box<dyn ReadAt>),
}

impl Sealed {
    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Mapped(map) => map.len(),
            Self::Read(file) => file.bytes(),
        }
    }

    /// All of its bytes, if they are at most `most`.
    pub(crate) fn all(&self, most: usize) -> io::Result<Vec<u8>> {
        if self.bytes() > most {
            return Err(ErrorKind::InvalidData.into());
        }
        match self {
            Self::Mapped(map) => Ok(map.to_vec()),
            Self::Read(file) => {
                let mut bytes = vec![0; file.bytes()];
                file.read_at(&mut bytes, 0)?;
                Ok(bytes)
            }
        }
    }

    /// Whether it consists of these bytes.
    pub(crate) fn is(&self, bytes: &[u8]) -> io::Result<bool> {
        Ok(self.bytes() == bytes.len() && self.all(bytes.len())? == bytes)
    }
}

/// A file that is read at chosen places.
pub trait ReadAt: Send + Sync + std::fmt::Debug {
    /// Its size.
    fn bytes(&self) -> usize;

    /// Fills `bytes` with those at `at`.
    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()>;

    /// Whether a read may be a request to another machine. Then what is needed of several places is read by
    /// [`Storage::read_parts`](super::Storage::read_parts), which makes their requests at the same time.
    fn is_far(&self) -> bool {
        false
    }

    /// What was read does not verify: bytes that are kept of it are not used again.
    fn forget(&self) {}
}

/// Parts of a file that are needed.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The name of the file.
    pub name: String,
    /// Where they are.
    pub ranges: Vec<Range<usize>>,
}

/// A file of a directory.
#[derive(Debug)]
pub(super) struct LocalFile<S> {
    path: PathBuf,
    steps: S,
    bytes: usize,
    file: Mutex<std::sync::Arc<File>>,
}

impl<S: FileOperations> LocalFile<S> {
    pub(super) fn open(path: PathBuf, steps: S) -> io::Result<Self> {
        let file = steps.open(&path)?;
        Self::of(path, steps, file)
    }

    /// One that is open already.
    pub(super) fn of(path: PathBuf, steps: S, file: File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Ok(Self { path, steps, bytes, file: Mutex::new(file.into()) })
    }

    /// All of it, in memory that no other process can take away.
    pub(super) fn all(&self) -> io::Result<Vec<u8>> {
        // A file may say that it is larger than all memory.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.bytes).map_err(io::Error::other)?;
        bytes.resize(self.bytes, 0);
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl<S: FileOperations> ReadAt for LocalFile<S> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match fill(&self.steps, &file, bytes, at as u64) {
            // The server has forgotten the handle, not the file: under its name there is another.
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => {
                let file = std::sync::Arc::new(self.steps.open(&self.path)?);
                *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file.clone();
                fill(&self.steps, &file, bytes, at as u64)
            }
            other => other,
        }
    }
}

/// A file that is mapped as well. Its bytes are those of the map, so it is never opened again.
#[derive(Debug)]
pub(super) struct MappedFile<S> {
    steps: S,
    file: File,
}

impl<S: FileOperations> MappedFile<S> {
    pub(super) fn new(steps: S, file: File) -> Self {
        // What is around a row would be read with it, as if the next row were wanted next. A hint: who does not take it reads more.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Self { steps, file }
    }
}

impl<S: FileOperations> ReadAt for MappedFile<S> {
    fn bytes(&self) -> usize {
        self.file.metadata().map_or(0, |metadata| usize::try_from(metadata.len()).unwrap_or(usize::MAX))
    }

    fn read_at(&self, bytes: &mut [u8], at: usize) -> io::Result<()> {
        fill(&self.steps, &self.file, bytes, at as u64)
    }
}

fn fill(steps: &impl FileOperations, file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match steps.read_at(file, bytes, at) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes = &mut bytes[read..];
                at += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
