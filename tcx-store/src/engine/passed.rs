//! Records that a module has passed checks of its outputs, in small files beside its rows: a later process need not repeat them.
//! What the checks are is up to the caller. A record that is missing or damaged means that nothing has passed.

use std::io::{self, Write};
use std::sync::Mutex;

use crate::changes::IdentityChange;
use crate::engine::Core;
use crate::schema::spec::Spec;
use crate::storage::Storage;
use crate::storage::TEMPORARY_FILES_STAY;
use crate::storage::name::FileName;
use crate::sys::checksum::checksum;
use crate::sys::runtime::lock;

/// The folder of the records, in the module's folder.
pub(crate) const FOLDER: &str = "checks";

/// The number of records that are kept, the newest: each build of a program may leave some.
const KEPT: usize = 64;

/// The first line. Records of another version have another name, too.
const FIRST: &str = "tcx checks 1";

/// The most bytes of what has passed.
const MOST_TEXT: usize = 1000;

/// What has passed in this process and is still to be written.
#[derive(Debug, Default)]
pub(crate) struct Passed(Mutex<Vec<String>>);

impl Core {
    /// Whether a process has recorded that this module passed `checks`.
    pub(crate) fn has_passed(&self, checks: &str) -> bool {
        let (name, bytes) = record(&self.spec, checks);
        let file = self.storage.existing_folder(FOLDER).and_then(|folder| folder.open(&name));
        file.and_then(|file| file.is(&bytes)).unwrap_or(false)
    }

    /// Records that this module has passed `checks`, as soon as its folder is there.
    pub(crate) fn record_passed(&self, checks: &str) {
        lock(&self.passed.0).push(checks.to_owned());
    }

    /// Removes what was recorded of `checks`, and what waits to be recorded unless the core `is_inherited`.
    pub(crate) fn forget_passed(&self, checks: &str, is_inherited: bool) {
        // The writer holds the lock while it writes: nothing is recorded after this. What waits in the process that this one was
        // forked from is out of reach, and so is its lock.
        let mut waiting = (!is_inherited).then(|| lock(&self.passed.0));
        if let Some(waiting) = &mut waiting {
            waiting.retain(|own| own != checks);
        }
        if let Ok(folder) = self.storage.existing_folder(FOLDER) {
            let _ = folder.remove(&record(&self.spec, checks).0);
        }
    }

    /// Writes the records that wait, if the folder is there.
    pub(crate) fn write_passed(&self) {
        let mut waiting = lock(&self.passed.0);
        if waiting.is_empty() || self.check().is_err() {
            return;
        }
        // A folder that is not there (yet, or any more) is not made for their sake.
        if self.storage.info(&FileName::Change(0).to_string()).is_err() {
            return;
        }
        for checks in std::mem::take(&mut *waiting) {
            let (name, bytes) = record(&self.spec, &checks);
            if let Err(error) = write(&*self.storage, &name, &bytes) {
                let path = self.storage.path().join(FOLDER);
                tracing::debug!(path = %path.display(), "passed checks are not recorded: {error}");
            }
        }
    }
}

/// The name of a record and its bytes, both of which hold the identity of the module: one that was copied elsewhere says nothing
/// there.
fn record(spec: &Spec, checks: &str) -> (String, Vec<u8>) {
    let identity = IdentityChange::new(spec).digest();
    let checks: String =
        checks.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_TEXT).collect();
    let text = format!("{FIRST}\nmodule {}\nidentity {identity}\npassed {checks}\n", spec.module_id);
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let sum = checksum(text.as_bytes());
    (format!("{}.txt", &hash[..32]), format!("{text}checksum {sum:016x}\n").into_bytes())
}

fn is_record(name: &str) -> bool {
    let hex = |hash: &str| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.strip_suffix(".txt").is_some_and(hex)
}

fn write(storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = storage.folder(FOLDER)?;
    let mut draft = folder.draft()?;
    draft.write_all(bytes)?;
    draft.publish(name, false)?;
    remove_old(&*folder);
    Ok(())
}

/// Removes the oldest records where there are more than are kept, and what processes have left that were killed while they wrote one.
fn remove_old(folder: &dyn Storage) {
    let listed = folder.list().unwrap_or_default();
    let age = |name: &String| folder.info(name).ok().map(|info| info.age);
    let mut records: Vec<_> =
        listed.iter().filter(|name| is_record(name)).filter_map(|name| Some((age(name)?, name))).collect();
    records.sort_unstable();
    for (_, name) in records.iter().skip(KEPT) {
        let _ = folder.remove(name);
    }
    for name in listed.iter().filter(|name| matches!(FileName::parse(name), Some(FileName::Temporary(_)))) {
        if age(name).is_some_and(|age| age >= TEMPORARY_FILES_STAY) {
            let _ = folder.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{compute, process, reader};
    use crate::{OtherFiles, verify};

    #[test]
    fn what_has_passed_is_recorded_with_the_first_rows_and_is_no_part_of_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let (store, folder) = (process(dir.path()), dir.path().join("m_v1"));
        store.record_passed("a");
        store.flush().unwrap();
        assert!(!store.has_passed("a") && !folder.exists(), "no folder is made for it");
        compute(&store, &["a"], 7);
        drop(store);
        let store = process(dir.path());
        assert!(store.has_passed("a") && !store.has_passed("b"));
        assert_eq!(OtherFiles::read(&folder).unwrap().unrecognised, [""; 0]);
        assert!(verify(&folder, &mut |_, _| ()).unwrap().damage.is_empty());
        let usage = store.disk_usage().unwrap();
        store.forget_passed("a");
        assert!(!store.has_passed("a"));
        assert_eq!(store.disk_usage().unwrap(), usage);
        store.forget_passed("a");
    }

    #[test]
    fn a_damaged_record_and_one_of_another_folder_say_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        store.record_passed("a");
        compute(&store, &["a"], 7);
        drop(store);
        let store = reader(dir.path());
        let (name, bytes) = record(&store.core.spec, "a");
        let path = dir.path().join("m_v1").join(FOLDER).join(name);
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let flipped = [&bytes[..20], &[bytes[20] ^ 1], &bytes[21..]].concat();
        for damaged in [&bytes[..0], &bytes[..bytes.len() - 1], &flipped, &[&bytes[..], b"\n"].concat()] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, damaged).unwrap();
            assert!(!store.has_passed("a"));
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(!store.has_passed("a"));
    }

    #[test]
    fn only_the_newest_records_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = process(dir.path());
        compute(&store, &["a"], 7);
        store.flush().unwrap();
        for number in 0..KEPT + 5 {
            store.record_passed(&format!("{number}"));
        }
        drop(store);
        assert_eq!(fs::read_dir(dir.path().join("m_v1").join(FOLDER)).unwrap().count(), KEPT);
    }
}
