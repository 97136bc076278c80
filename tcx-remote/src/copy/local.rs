//! The files of a module in a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use tcx_store::{Inspection, SegmentFacts};

use super::files::{Kind, kind};

/// The files of a module's folder and their lengths; none if there is no such folder.
pub(super) fn list(dir: &Path) -> io::Result<BTreeMap<String, u64>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.map_err(|error| failed("list", dir, &error))?,
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("list", dir, &error))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A link could lead out of the cache; a file may have been removed since.
        let metadata = entry.metadata();
        if let (Some(_), Ok(metadata)) = (kind(&name), metadata)
            && metadata.is_file()
        {
            files.insert(name, metadata.len());
        }
    }
    Ok(files)
}

/// The numbers of the changes among these files.
pub(super) fn changes<'a>(names: impl Iterator<Item = &'a String>) -> Vec<u64> {
    let number = |name: &String| match kind(name) {
        Some(Kind::Change(number)) => Some(number),
        _ => None,
    };
    names.filter_map(number).collect()
}

/// The segments of a folder that count on certain changes.
#[derive(Default)]
pub(super) struct Counting {
    /// Those that one of the changes commits. They have their names before it, and say whose change they wait for: another one of this
    /// number makes them void.
    pub(super) committed: BTreeSet<String>,
    /// All others. They get their names after the changes: beside other changes of these numbers they would be served, whatever those
    /// invalidate.
    pub(super) others: BTreeSet<String>,
}

/// The segments of a folder that count on one of these changes.
pub(super) fn counting_on(dir: &Path, changes: Range<u64>) -> io::Result<Counting> {
    // Every segment counts on change 0, and none is committed by it.
    let changes = changes.start.max(1)..changes.end;
    if changes.is_empty() {
        return Ok(Counting::default());
    }
    let inspected = Inspection::open(dir).map_err(|error| io::Error::other(format!("{error:#}")))?;
    let segments = inspected.segments().filter(|segment| changes.contains(&segment.base));
    let (committed, others): (Vec<_>, Vec<_>) = segments.partition(|segment| segment.replaces_rows);
    let names = |segments: Vec<&SegmentFacts>| segments.iter().map(|own| own.name.clone()).collect();
    Ok(Counting { committed: names(committed), others: names(others) })
}

pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| failed("read", path, &error))
}

/// A new file that is readable for others once it has its name.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| failed("create", path, &error))
}

/// Makes a file durable, and read-only as tcx leaves its files.
pub(super) fn seal(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all().map_err(|error| failed("sync", path, &error))?;
    // A courtesy; some file systems refuse it.
    if let Ok(metadata) = file.metadata() {
        let mut permissions = metadata.permissions();
        permissions.set_readonly(true);
        let _ = file.set_permissions(permissions);
    }
    Ok(())
}

/// Gives a file another name, unless that exists: then this is `false`. The old name is gone in any case.
pub(super) fn give_name(from: &Path, to: &Path) -> io::Result<bool> {
    let is_new = match fs::hard_link(from, to) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
        Err(error) => return Err(failed("create", to, &error)),
    };
    fs::remove_file(from).map_err(|error| failed("remove", from, &error))?;
    Ok(is_new)
}

/// Makes sure that a folder is no link, which could lead out of the cache.
///
/// # Errors
///
/// Returns an error if it is one.
pub(super) fn refuse_link(folder: &Path) -> io::Result<()> {
    if fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_symlink()) {
        let what = format!("{} is a link, which could lead out of the cache: remove it", folder.display());
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// Makes a folder, and its name durable.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| failed("create", dir, &error))?;
    dir.parent().filter(|parent| *parent != Path::new("")).map_or(Ok(()), sync)
}

/// Makes the names in a folder durable.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed("sync", dir, &error))?;
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}

pub(super) fn failed(action: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action} {}: {error}", path.display()))
}
