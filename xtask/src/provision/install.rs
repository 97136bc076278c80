//! Folders that appear complete or not at all, also when several setups run at once or one is killed.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use crate::failure::{OnPath, Result};

/// Written last into an installed folder: what it was made from.
const STAMP: &str = ".provisioned";

/// A lock held by one process at a time, and by none once it has died.
pub(crate) struct Lock {
    /// `None` where the file system knows no locks: then names alone keep two setups apart.
    file: Option<File>,
}

impl Lock {
    /// Waits for the lock, and says so if it must.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(path).on("open the lock", path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file: Some(file) }),
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another `cargo xtask` to finish with {}", path.display());
                file.lock().on("lock", path)?;
                Ok(Self { file: Some(file) })
            }
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Self { file: None })
            }
            Err(TryLockError::Error(error)) => Err(error).on("lock", path),
        }
    }
}

/// A temporary folder beside the place that its content is meant for, removed when dropped.
pub(crate) struct Partial {
    path: PathBuf,
    lock: Option<File>,
}

impl Partial {
    /// A new, empty one. What killed processes left for the same place is removed first, if `lock` proves
    /// that they are gone.
    pub(crate) fn beside(place: &Path, lock: &Lock) -> Result<Self> {
        if lock.file.is_some() {
            clear_leftovers(place)?;
        }
        let path = partial_name(place, &process::id().to_string());
        fs::create_dir_all(&path).on("create the folder", &path)?;
        let lock = lock.file.as_ref().and_then(|file| file.try_clone().ok());
        Ok(Self { path, lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Standard input for a program that writes here: nothing to read, but a hold on the lock. Should this
    /// process be killed, the next setup waits until that program has ended, too.
    pub(crate) fn hold(&self) -> Stdio {
        let lock = self.lock.as_ref().and_then(|file| file.try_clone().ok());
        lock.map_or_else(Stdio::null, Stdio::from)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The next setup clears away what cannot be removed now.
        let _ = remove(&self.path);
    }
}

/// Puts a folder into `place`, unless the folder there was already made from `source`. `fill` makes the content
/// in a temporary folder. `true` if it was called.
pub(crate) fn install(place: &Path, source: &str, fill: impl FnOnce(&Partial) -> Result<()>) -> Result<bool> {
    if is_made_from(place, source) {
        return Ok(false);
    }
    let parent = place.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).on("create the folder", parent)?;
    let lock = Lock::take(&parent.join(".xtask.lock"))?;
    // Another setup may have been at it while this one waited.
    if is_made_from(place, source) {
        return Ok(false);
    }
    let partial = Partial::beside(place, &lock)?;
    fill(&partial)?;
    let stamp = partial.path().join(STAMP);
    fs::write(&stamp, source).on("write", &stamp)?;
    let old = partial_name(place, &format!("{}-old", process::id()));
    if place.symlink_metadata().is_ok() {
        fs::rename(place, &old).on("move away", place)?;
    }
    fs::rename(partial.path(), place).on("move into place", place)?;
    // Like `Partial`: a leftover is not this setup's failure.
    let _ = remove(&old);
    Ok(true)
}

/// Makes the next [`install`] at this place fill it again.
pub(crate) fn invalidate(place: &Path) {
    let _ = fs::remove_file(place.join(STAMP));
}

fn is_made_from(place: &Path, source: &str) -> bool {
    fs::read_to_string(place.join(STAMP)).is_ok_and(|stamp| stamp == source)
}

fn partial_name(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".partial-");
    name.push(suffix);
    place.with_file_name(name)
}

fn clear_leftovers(place: &Path) -> Result<()> {
    let parent = place.parent().unwrap_or(Path::new("."));
    let pattern = partial_name(place, "");
    let prefix = pattern.file_name().unwrap_or_default();
    for entry in fs::read_dir(parent).on("list", parent)? {
        let entry = entry.on("list", parent)?;
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            remove(&entry.path()).on("remove", &entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder with its content, but of a link only the link.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn put(text: &'static str) -> impl FnOnce(&Partial) -> Result<()> {
        move |folder| {
            let file = folder.path().join("content");
            fs::write(&file, text).on("write", &file)
        }
    }

    fn content(place: &Path) -> String {
        fs::read_to_string(place.join("content")).unwrap()
    }

    fn visible(folder: &Path) -> Vec<OsString> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != ".xtask.lock").collect()
    }

    #[test]
    fn a_folder_is_filled_once_for_each_source() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        assert!(install(&place, "one", put("first")).unwrap());
        assert!(!install(&place, "one", put("never")).unwrap());
        assert_eq!(content(&place), "first");
        assert!(install(&place, "two", put("second")).unwrap());
        assert_eq!(content(&place), "second");
        invalidate(&place);
        assert!(install(&place, "two", put("third")).unwrap());
        assert_eq!(content(&place), "third");
        assert_eq!(visible(root.path()), ["place"]);
    }

    #[test]
    fn a_failed_fill_leaves_what_was_there() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        install(&place, "one", put("first")).unwrap();
        let failing = |folder: &Partial| {
            put("half")(folder)?;
            Err(Failure::new("the disk is full"))
        };
        assert!(install(&place, "two", failing).is_err());
        assert_eq!(content(&place), "first");
        assert_eq!(visible(root.path()), ["place"]);
    }

    #[test]
    fn leftovers_of_killed_setups_are_cleared_away() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        fs::create_dir_all(root.path().join("place.partial-77/include")).unwrap();
        fs::create_dir_all(root.path().join("place.partial-old")).unwrap();
        install(&place, "one", put("first")).unwrap();
        assert_eq!(visible(root.path()), ["place"]);
    }

    #[test]
    fn a_folder_of_unknown_origin_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("content"), "unknown").unwrap();
        assert!(install(&place, "one", put("first")).unwrap());
        assert_eq!(content(&place), "first");
    }

    #[cfg(unix)]
    #[test]
    fn of_a_link_only_the_link_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (place, own) = (root.path().join("place"), root.path().join("own"));
        fs::create_dir(&own).unwrap();
        fs::write(own.join("content"), "the user's").unwrap();
        std::os::unix::fs::symlink(&own, &place).unwrap();
        install(&place, "one", put("first")).unwrap();
        assert_eq!(content(&place), "first");
        assert_eq!(content(&own), "the user's");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_outlives_its_setup_keeps_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lock");
        let lock = Lock::take(&path).unwrap();
        let partial = Partial::beside(&root.path().join("place"), &lock).unwrap();
        let mut writer = process::Command::new("sleep").arg("60").stdin(partial.hold()).spawn().unwrap();
        drop((partial, lock));
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        other.lock().unwrap();
    }

    #[test]
    fn two_setups_at_once_fill_once() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("place");
        let filled: usize = std::thread::scope(|scope| {
            let setups: Vec<_> =
                (0..4).map(|_| scope.spawn(|| install(&place, "one", put("first")).unwrap())).collect();
            setups.into_iter().map(|setup| usize::from(setup.join().unwrap())).sum()
        });
        assert_eq!(filled, 1);
        assert_eq!(content(&place), "first");
    }
}
