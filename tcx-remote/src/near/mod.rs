//! The near tier: a directory of this machine with copies of the files of a store, and those that wait to be sent. All processes of the
//! machine may share it.
//!
//! A module has one folder in it:
//!
//! - `files`: copies of sealed files under their names, and index runs, which are in no store; `tmp-…` are being written, and `get-…` are
//!   segments that are being received. A change has the tag of its object in its name: another change of this number is another file.
//! - `spool`: segments that are not known to be in the store, in a folder that names the history they belong to;
//! - `departed`: empty files, named as the segments that another process than their own has sent or removed;
//! - `removed`: when segments that wait were removed from a store that has another module, in milliseconds since 1970;
//! - `locks`: of one file each.

pub(crate) mod budget;
pub(crate) mod lock;
pub(crate) mod place;

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tcx_store::unstable::runtime;

use crate::client::connect::host;
use crate::options::ClientOptions;
use crate::url::StoreUrl;

/// The longest name of a folder of the near tier.
const MOST_NAME: usize = 160;

/// The folder with copies of modules in stores that are directories. No store has a folder of this name: the names of URLs are longer.
pub(crate) const MIRRORS: &str = "mirrors";

/// The names of files that are being written, and of segments that are being received, begin so.
const TEMPORARY: &str = "tmp-";
const ARRIVING: &str = "get-";

/// Temporary files of this age are those of killed processes.
const TEMPORARY_FILES_STAY: Duration = Duration::from_hours(24);

/// Empty folders of the spool are removed at this age.
const EMPTY_STAY: Duration = Duration::from_mins(1);

/// The processes that a note is for look at it within this time, or have ended.
const NOTES_STAY: Duration = Duration::from_hours(24 * 7);

/// The folder of one module.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    dir: PathBuf,
}

/// A segment that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Spooled {
    /// The name of the folder that it is in.
    pub(crate) origin: String,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

impl Near {
    /// Nothing is made yet. `store` is the folder of the [store](store_folder).
    pub(crate) fn new(tier: &Path, store: &str, module: &str) -> Self {
        Self { dir: tier.join(store).join(module) }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn make(&self) -> io::Result<()> {
        ["files", "spool", "locks"]
            .into_iter()
            .try_for_each(|folder| fs::create_dir_all(self.dir.join(folder)))
    }

    fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files().join(name)
    }

    pub(crate) fn lock(&self, name: &str) -> PathBuf {
        self.dir.join("locks").join(name)
    }

    /// A new file under a temporary name.
    pub(crate) fn create_temporary(&self) -> io::Result<(PathBuf, File)> {
        self.create(&format!("{TEMPORARY}{:032x}", random()?))
    }

    /// A new file for a segment of this length that is being received. The caller has the lock of the segment: without that, the file is
    /// one of a process that was killed.
    pub(crate) fn create_arriving(&self, name: &str, bytes: u64) -> io::Result<(PathBuf, File)> {
        let (path, file) = self.create(&format!("{ARRIVING}{:032x}-{name}", random()?))?;
        file.set_len(bytes).inspect_err(|_| {
            let _ = fs::remove_file(&path);
        })?;
        Ok((path, file))
    }

    /// The names of the segments that are being received, by any process of the machine, or by one that was killed.
    pub(crate) fn arriving(&self) -> io::Result<Vec<String>> {
        let files = names(&self.files())?;
        Ok(files.iter().filter_map(|file| Self::arriving_segment(file)).map(str::to_owned).collect())
    }

    /// The name of the segment that a file is being received of, if it is such a file.
    fn arriving_segment(name: &str) -> Option<&str> {
        name.strip_prefix(ARRIVING)?.get(33..)
    }

    fn create(&self, name: &str) -> io::Result<(PathBuf, File)> {
        let path = self.file(name);
        let create = || OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = match create() {
            // It was removed with all that was in it, or was not made yet.
            Err(error) if error.kind() == ErrorKind::NotFound => self.make().and_then(|()| create())?,
            created => created?,
        };
        Ok((path, file))
    }

    /// When a copy has come or gone last, as coarsely as the file system says it.
    pub(crate) fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.files()).and_then(|files| files.modified()).ok()
    }

    /// The names of the index runs.
    pub(crate) fn runs(&self) -> io::Result<Vec<String>> {
        let mut names = names(&self.files())?;
        names.retain(|name| name.starts_with("run-"));
        Ok(names)
    }

    fn spool(&self) -> PathBuf {
        self.dir.join("spool")
    }

    /// The segments that wait.
    pub(crate) fn spooled(&self) -> io::Result<Vec<Spooled>> {
        let mut spooled = Vec::new();
        for origin in names(&self.spool())? {
            let dir = self.spool().join(&origin);
            for name in names(&dir)? {
                let path = dir.join(&name);
                let metadata = match fs::metadata(&path) {
                    // Another process has sent it.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    metadata => metadata?,
                };
                spooled.push(Spooled { origin: origin.clone(), name, path, bytes: metadata.len() });
            }
        }
        Ok(spooled)
    }

    /// Where the segment of this name waits, if it does.
    pub(crate) fn find_spooled(&self, name: &str) -> Option<PathBuf> {
        let origins = names(&self.spool()).ok()?;
        let mut paths = origins.into_iter().map(|origin| self.spool().join(origin).join(name));
        paths.find(|path| path.exists())
    }

    fn departed(&self) -> PathBuf {
        self.dir.join("departed")
    }

    /// Notes that a segment of another process waits no longer, before it leaves the spool: it was sent, or removed on purpose. Best effort:
    /// without it, that process may report that rows are lost which are not.
    pub(crate) fn note_departure(&self, name: &str) {
        let noted =
            fs::create_dir_all(self.departed()).and_then(|()| File::create(self.departed().join(name)));
        if let Err(error) = noted {
            tracing::debug!(segment = %name, "its departure is not noted: {error}");
        }
    }

    /// Whether another process has [noted](Self::note_departure) that it sent or removed a segment of this one, which is forgotten then.
    pub(crate) fn take_departure(&self, name: &str) -> bool {
        fs::remove_file(self.departed().join(name)).is_ok()
    }

    fn removed(&self) -> PathBuf {
        self.dir.join("removed")
    }

    /// Notes when a segment that waits here is removed from a store which has another module. Until that must have come, no process of the
    /// machine sends the segment.
    pub(crate) fn note_removal(&self, name: &str, at: SystemTime) -> io::Result<()> {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        fs::create_dir_all(self.removed())?;
        fs::write(self.removed().join(name), since.as_millis().to_string())
    }

    /// When it was noted that a segment is removed. After a loss of power, the time of the note may be all there is of it.
    pub(crate) fn removed_at(&self, name: &str) -> Option<SystemTime> {
        let path = self.removed().join(name);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            noted => {
                let since = noted.ok().and_then(|noted| noted.parse().ok()).map(Duration::from_millis);
                let noted = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
                let written = || fs::metadata(&path).and_then(|note| note.modified()).ok();
                Some(noted.or_else(written).unwrap_or_else(runtime::wall))
            }
        }
    }

    /// The removal has come, or it is long ago.
    pub(crate) fn forget_removal(&self, name: &str) {
        let _ = fs::remove_file(self.removed().join(name));
    }

    /// Moves a complete and durable file to the spool, durably.
    pub(crate) fn to_spool(&self, from: &Path, origin: &str, name: &str) -> io::Result<Spooled> {
        let dir = self.spool().join(origin);
        let make = || {
            fs::create_dir_all(&dir)?;
            sync(&self.spool())?;
            self.dir.ancestors().take(3).try_for_each(sync)
        };
        if dir.exists() {
            // Another process may have made it just now.
            sync(&self.spool())?;
        } else {
            make()?;
        }
        let path = dir.join(name);
        match fs::rename(from, &path) {
            // Another process has removed the folder, because it was empty for long.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make().and_then(|()| fs::rename(from, &path))?;
            }
            renamed => renamed?,
        }
        sync(&dir)?;
        let bytes = fs::metadata(&path)?.len();
        Ok(Spooled { origin: origin.to_owned(), name: name.to_owned(), path, bytes })
    }

    /// Removes copies of files that are not in the store any more, by `is_kept`, and what killed processes have left, if they are older
    /// than `grace`. Best effort.
    pub(crate) fn clean(&self, grace: Duration, is_kept: impl Fn(&str) -> bool) {
        let is_old = |path: &PathBuf, stay| age(path).is_some_and(|age| age >= stay);
        for name in names(&self.files()).unwrap_or_default() {
            let stay = if name.starts_with(TEMPORARY) { TEMPORARY_FILES_STAY.max(grace) } else { grace };
            let path = self.file(&name);
            if !name.starts_with("run-") && !is_kept(&name) && is_old(&path, stay) {
                let _ = fs::remove_file(path);
            }
        }
        let old = |dir: PathBuf, stay| {
            let paths = names(&dir).unwrap_or_default().into_iter().map(move |name| dir.join(name));
            paths.filter(move |path| is_old(path, stay))
        };
        old(self.dir.join("locks"), grace).for_each(|path| lock::remove_unless_held(&path));
        for notes in [self.departed(), self.removed()] {
            old(notes, NOTES_STAY).for_each(|path| drop(fs::remove_file(path)));
        }
        // Each change begins another folder. One in which something waits cannot be removed so.
        old(self.spool(), grace.min(EMPTY_STAY)).for_each(|path| drop(fs::remove_dir(path)));
    }
}

fn random() -> io::Result<u128> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(io::Error::other)?;
    Ok(u128::from_le_bytes(bits))
}

fn age(path: &Path) -> Option<Duration> {
    SystemTime::now().duration_since(fs::metadata(path).ok()?.modified().ok()?).ok()
}

/// The names in a directory; none if there is no such directory.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    let mut names = names.filter_map(io::Result::transpose).collect::<io::Result<Vec<_>>>()?;
    // Whatever the file system's order is.
    names.sort();
    Ok(names)
}

/// Makes the names in a directory durable.
fn sync(dir: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(dir)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}

/// The name of the folder of a store: two stores whose buckets have one name have two.
///
/// # Errors
///
/// Returns an error if a setting is unknown, or names another store than the URL.
pub(crate) fn store_folder(url: &StoreUrl, client: &ClientOptions) -> io::Result<String> {
    let store = match host(url, client)? {
        Some(host) => format!("{url} {host}"),
        None => url.to_string(),
    };
    Ok(folder_name(&store))
}

/// The name of the folder of a URL: another one for each.
fn folder_name(url: &str) -> String {
    let mut name = String::with_capacity(url.len());
    for byte in url.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => name.push(char::from(byte)),
            other => {
                // Writing to a string cannot fail.
                let _ = write!(name, "_{other:02x}");
            }
        }
    }
    if name.len() > MOST_NAME {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        name.truncate(MOST_NAME - 17);
        let _ = write!(name, "~{hash:016x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_url_has_a_folder_of_its_own_whose_name_is_a_plain_one() {
        let long = format!("s3://b/{}", "a/".repeat(300));
        let urls =
            ["s3://b/p", "s3://b/p/q", "s3://b/p_q", "s3://b_2fp", "gs://b/p", &long, &format!("{long}b")];
        let mut names: Vec<_> = urls.iter().map(|url| folder_name(url)).collect();
        assert!(names.iter().all(|name| name.len() <= MOST_NAME && !name.contains('/')), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), urls.len());
    }

    #[test]
    fn old_locks_are_removed_unless_a_process_holds_them() {
        let dir = tempfile::tempdir().unwrap();
        let near = Near::new(dir.path(), "store", "m_v1");
        near.make().unwrap();
        let held = lock::lock(&near.lock("held")).unwrap();
        drop(lock::lock(&near.lock("left")).unwrap());
        near.clean(Duration::ZERO, |_| true);
        let left = names(&near.dir().join("locks")).unwrap();
        assert_eq!(left, ["held"]);
        drop(held);
        near.clean(Duration::ZERO, |_| true);
        assert!(!near.lock("held").exists());
    }
}
