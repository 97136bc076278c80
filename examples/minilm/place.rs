//! The demo's own folder: the cache, and what is remembered of earlier runs.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::record::Record;

/// Distinguishes a folder of this demo from all others: nothing is written to, or removed from, a folder without it.
const MARK: &str = "minilm-demo.txt";
const TITLE: &str = "# A cache that the demo `minilm` of tcx made, and may remove.";
const ROWS: &str = "rows";

/// What is remembered from run to run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// The epoch that filled the cache.
    pub(crate) cold: Option<Record>,
    /// How many epochs on edited texts there were; each run edits otherwise.
    pub(crate) edits: usize,
}

/// A folder that belongs to this demo.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// Makes a folder the demo's own, emptied if `fresh`, unless it holds what is not the demo's.
    pub(crate) fn take(folder: &Path, fresh: bool) -> anyhow::Result<Self> {
        let place = Self { folder: folder.to_owned() };
        place.own().with_context(|| format!("the cache's folder {}", folder.display()))?;
        if fresh {
            place.clear().with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        Ok(place)
    }

    fn own(&self) -> anyhow::Result<()> {
        if self.mark().is_file() {
            return Ok(());
        }
        match fs::read_dir(&self.folder).map(Iterator::count) {
            Ok(0) => {}
            Ok(_) => bail!("holds something else: name an empty folder or a new one with `--cache`"),
            Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(&self.folder)?,
            Err(error) => return Err(error.into()),
        }
        self.remember(&Memory::default())
    }

    /// Removes the rows and the memory; the folder itself, and whatever else somebody put there, stays.
    fn clear(&self) -> anyhow::Result<()> {
        match fs::remove_dir_all(self.rows()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => self.remember(&Memory::default()),
        }
    }

    /// Where tcx keeps its files.
    pub(crate) fn rows(&self) -> PathBuf {
        self.folder.join(ROWS)
    }

    fn mark(&self) -> PathBuf {
        self.folder.join(MARK)
    }

    /// What earlier runs left. What cannot be read is forgotten: it is for show only.
    pub(crate) fn recall(&self) -> Memory {
        let text = fs::read_to_string(self.mark()).unwrap_or_default();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        Memory {
            cold: value("cold").and_then(|line| line.parse().ok()),
            edits: value("edits").and_then(|count| count.parse().ok()).unwrap_or(0),
        }
    }

    pub(crate) fn remember(&self, memory: &Memory) -> anyhow::Result<()> {
        let mut text = format!("{TITLE}\nedits = {}\n", memory.edits);
        if let Some(cold) = &memory.cold {
            writeln!(text, "cold = {cold}")?;
        }
        // In one step, so that a kill in between costs nothing.
        let draft = self.folder.join(format!("{MARK}.{}", std::process::id()));
        fs::write(&draft, text)?;
        Ok(fs::rename(&draft, self.mark())?)
    }

    /// How many bytes the cache takes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        tcx_examples::bytes(&self.rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_other_things_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("rows");
        fs::create_dir(&precious).unwrap();
        for fresh in [false, true] {
            let message = format!("{:#}", Place::take(folder.path(), fresh).unwrap_err());
            assert!(message.contains("holds something else"), "{message}");
            assert!(precious.is_dir());
        }
    }

    #[test]
    fn fresh_removes_the_rows_and_the_memory_only() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::take(&folder.path().join("a/b"), false).unwrap();
        fs::create_dir(place.rows()).unwrap();
        fs::write(place.rows().join("row"), [0; 100]).unwrap();
        fs::write(folder.path().join("a/b/notes"), "mine").unwrap();
        place.remember(&Memory { cold: None, edits: 3 }).unwrap();
        let again = Place::take(&folder.path().join("a/b"), false).unwrap();
        assert_eq!((again.bytes(), again.recall().edits), (100, 3));
        let fresh = Place::take(&folder.path().join("a/b"), true).unwrap();
        assert_eq!((fresh.bytes(), fresh.recall()), (0, Memory::default()));
        assert!(!fresh.rows().exists() && folder.path().join("a/b/notes").is_file());
    }

    #[test]
    fn a_cold_epoch_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::take(folder.path(), false).unwrap();
        let memory = Memory { cold: Some(crate::record::tests::record()), edits: 1 };
        place.remember(&memory).unwrap();
        assert_eq!(place.recall(), memory);
        fs::write(place.mark(), "edits = many\ncold = yesterday\n").unwrap();
        assert_eq!(place.recall(), Memory::default());
    }
}
