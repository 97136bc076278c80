//! Directories that an attacker has prepared: whatever is in them, nothing outside is touched, nothing hangs, nothing panics,
//! and errors name the place.

mod contents;
mod things;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tcx_store::Store;

use crate::forge::ForgedSegment;
use crate::{Dice, Findings, Workers, files, get_or_compute, options, spec};

/// The rows of a directory before it becomes a trap.
pub const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Rows that are computed in a trap.
pub const NEW: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// So long a visit may take; it does its work in a tenth of a second.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cache, and what lies outside of it.
#[derive(Debug)]
pub struct Place {
    root: tempfile::TempDir,
}

/// What is put into a place.
pub struct Trap {
    /// What it is.
    pub name: String,
    set: Box<dyn Fn(&Place)>,
    rows: Rows,
}

/// What becomes of the rows that were there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// All of them are found.
    Kept,
    /// Those that are found are right.
    Right,
    /// An attacker who makes checksums right can make rows up: no reader can notice.
    MadeUp,
}

impl Place {
    fn new() -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(place.outside().join("folder")).unwrap();
        fs::write(place.outside().join("folder/kept"), "kept").unwrap();
        fs::write(place.outside().join("secret"), "a secret").unwrap();
        place
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn folder(&self) -> PathBuf {
        self.cache().join("m_v1")
    }

    fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    /// Rows in segments, one of which is joined with what it replaces still there.
    fn fill(&self) {
        let store = Store::open(&self.cache(), spec("224"), &options()).unwrap();
        for ids in IDS.chunks(2) {
            get_or_compute(&store, ids);
            store.flush().unwrap();
        }
        store.compact().unwrap();
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.folder().join(name);
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        fs::write(path, bytes).unwrap();
    }

    /// The files whose names begin so, with their bytes.
    fn read(&self, prefix: &str) -> Vec<(String, Vec<u8>)> {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        files(&self.cache(), prefix).iter().map(|path| (name(path), fs::read(path).unwrap())).collect()
    }

    /// The segment that stands for others.
    fn joined(&self) -> ForgedSegment {
        let segments = self.read("seg-").into_iter().map(|(_, bytes)| bytes);
        let mut joined = segments.filter(|bytes| bytes.windows(10).any(|window| window == b"tcx.inputs"));
        ForgedSegment::of(joined.next().unwrap())
    }

    fn instance(&self) -> [u8; 16] {
        *self.read("change-")[0].1[48..].first_chunk().unwrap()
    }

    /// Everything but the module's folder.
    fn survey(&self) -> Vec<(PathBuf, u64, SystemTime, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let metadata = fs::symlink_metadata(&path).unwrap();
                if path == self.cache() {
                    continue;
                }
                let bytes = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                found.push((path, metadata.len(), metadata.modified().unwrap(), bytes));
            }
        }
        found.sort();
        found
    }
}

/// Every trap that is always the same.
pub fn traps() -> Vec<Trap> {
    things::traps().into_iter().chain(contents::traps()).collect()
}

/// A file of some kind with random changes under right checksums.
pub fn forgery(dice: &mut Dice) -> Trap {
    contents::forgery(dice)
}

impl Trap {
    /// Lets a process do everything a store can do in this trap; tells what must not be.
    pub fn visit(&self, workers: &Workers) -> Findings {
        let place = Place::new();
        place.fill();
        (self.set)(&place);
        let before = place.survey();
        let arguments: &[&str] = if self.rows == Rows::MadeUp { &["made-up"] } else { &[] };
        let worker = workers.start("visit", &place.cache(), arguments);
        let Some(ended) = worker.end_within(PATIENCE) else {
            return Findings::of_wrong(format!("{}: it hangs", self.name));
        };
        let mut findings = Findings::default();
        let mut wrong = |what: String| findings.wrong.push(format!("{}: {what}", self.name));
        if !ended.status.success() || !ended.said.ends_with("left\n") || ended.complaints.contains("panicked")
        {
            wrong(format!("{}{}{}", ended.status, ended.said, ended.complaints));
        }
        if place.survey() != before {
            wrong("something outside was touched".to_owned());
        }
        for error in ended.said.lines().filter(|line| line.starts_with("error ")) {
            if !error.contains("m_v1") {
                wrong(format!("an error that does not name the place: {error}"));
            }
        }
        let found = ended.said.lines().filter_map(|line| line.strip_prefix("found "));
        let are_kept = |found: &str| self.rows != Rows::Kept || found == IDS.len().to_string();
        for found in found.filter(|found| !are_kept(found)) {
            findings.lost.push(format!("{}: {found} rows of {}", self.name, IDS.len()));
        }
        findings
    }
}

fn trap(name: impl Into<String>, rows: Rows, set: impl Fn(&Place) + 'static) -> Trap {
    Trap { name: name.into(), set: Box::new(set), rows }
}
