//! The single steps of a file system that [`LocalStorage`](super::LocalStorage) is made of: the seam where
//! tests make one fail.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use super::FileInfo;
use super::held::Dir;

/// When a folder or a file last changed and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When it last changed.
    pub modified: SystemTime,
    /// Which it is, as far as that can be said.
    pub inode: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &fs::Metadata) -> io::Result<Self> {
        Ok(Self { modified: metadata.modified()?, inode: inode(metadata) })
    }
}

/// One method is one step: it happens or fails as a whole.
pub(crate) trait FileOperations: Send + Sync + std::fmt::Debug + 'static {
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    fn create_file(&self, path: &Path) -> io::Result<File>;
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize>;
    fn seal(&self, file: &File) -> io::Result<()>;
    fn sync(&self, file: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must not exist.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames to a name that must not exist.
    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn hold(&self, path: &Path) -> io::Result<Dir>;
    /// What the file system says of the file `path`, in this directory wherever it is now.
    fn info_in(&self, dir: &Dir, path: &Path) -> io::Result<FileInfo>;
    fn remove_in(&self, dir: &Dir, path: &Path) -> io::Result<()>;
    /// Syncs this directory, which was at `path`.
    fn sync_held(&self, dir: &Dir, path: &Path) -> io::Result<()>;
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    fn stamp(&self, path: &Path) -> io::Result<Stamp>;
    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata>;
    fn open(&self, path: &Path) -> io::Result<File>;
    fn read_at(&self, file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize>;
}

/// The operating system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct System;

impl FileOperations for System {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).read(true).create_new(true).open(path)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        file.write(bytes)
    }

    fn seal(&self, file: &File) -> io::Result<()> {
        let mut permissions = file.metadata()?.permissions();
        permissions.set_readonly(true);
        file.set_permissions(permissions)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_no_replace(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        open_dir(path)?.sync_all()
    }

    fn hold(&self, path: &Path) -> io::Result<Dir> {
        Dir::open(path)
    }

    fn info_in(&self, dir: &Dir, path: &Path) -> io::Result<FileInfo> {
        dir.info(path)
    }

    fn remove_in(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        dir.remove(path)
    }

    fn sync_held(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        dir.sync(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        // A name that is not UTF-8 is not tcx's.
        let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(io::Result::transpose).collect()
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        Stamp::of(&fs::metadata(path)?)
    }

    fn metadata(&self, path: &Path) -> io::Result<fs::Metadata> {
        fs::symlink_metadata(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        open_regular(path)
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        read_at(file, bytes, at)
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, at)
}

/// Opens a plain file and nothing else: a link could lead out of the cache, a pipe would block forever.
#[cfg(unix)]
fn open_regular(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

/// A pipe in the place of the directory would block forever.
#[cfg(unix)]
pub(super) fn open_dir(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn open_dir(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(not(unix))]
fn open_regular(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path)?.is_file() { File::open(path) } else { Err(not_a_file()) }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a plain file")
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

#[cfg(target_os = "linux")]
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(target_os = "linux"))]
fn rename_no_replace(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_directory_is_an_error_and_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("module");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (tell, synced) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(System.sync_dir(&path).is_err()));
        assert_eq!(synced.recv_timeout(std::time::Duration::from_mins(1)), Ok(true), "it waits for a writer");
    }
}
