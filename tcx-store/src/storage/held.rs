//! A directory that is held open: what is done in it happens there, whatever comes in its place.

#[cfg(unix)]
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::operations::FileOperations;
#[cfg(unix)]
use super::operations::open_dir;
use super::{FileInfo, Held};

/// An open directory. Elsewhere than on Unix, where a program cannot remove files in one, it is known by its path: there no process
/// can rename a directory in which files are open.
#[derive(Debug)]
pub(crate) struct Dir {
    #[cfg(unix)]
    file: File,
}

#[cfg(unix)]
impl Dir {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: open_dir(path)? })
    }

    /// What the file system says of the file in this directory that has the last name of `path`.
    pub(crate) fn info(&self, path: &Path) -> io::Result<FileInfo> {
        use rustix::fs::{Mode, OFlags};
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.file, name(path)?, flags, Mode::empty())?;
        FileInfo::of(&File::from(file).metadata()?)
    }

    pub(crate) fn sync(&self, _: &Path) -> io::Result<()> {
        self.file.sync_all()
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.file, name(path)?, rustix::fs::AtFlags::empty())?)
    }
}

#[cfg(unix)]
fn name(path: &Path) -> io::Result<&std::ffi::OsStr> {
    path.file_name().ok_or_else(|| ErrorKind::InvalidInput.into())
}

#[cfg(not(unix))]
impl Dir {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|_| Self {})
    }

    pub(crate) fn info(&self, path: &Path) -> io::Result<FileInfo> {
        FileInfo::of(&std::fs::symlink_metadata(path)?)
    }

    pub(crate) fn sync(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// The held directory of a [`LocalStorage`](super::LocalStorage).
#[derive(Debug)]
pub(super) struct LocalHeld<S> {
    /// Where it was when it was opened.
    path: PathBuf,
    dir: Dir,
    steps: S,
}

impl<S: FileOperations> LocalHeld<S> {
    pub(crate) fn open(path: PathBuf, steps: S) -> io::Result<Self> {
        Ok(Self { dir: steps.hold(&path)?, path, steps })
    }
}

impl<S: FileOperations> Held for LocalHeld<S> {
    fn info(&self, name: &str) -> io::Result<FileInfo> {
        self.steps.info_in(&self.dir, &self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.steps.sync_held(&self.dir, &self.path)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.steps.remove_in(&self.dir, &self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
