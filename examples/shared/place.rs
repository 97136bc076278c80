//! A program's own folder, for its cache and for what it makes beside it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

const ROWS: &str = "rows";

/// The program that owns a folder.
#[derive(Debug)]
pub struct Kind {
    /// The file that marks the folder as the program's: without it nothing there is written or removed.
    pub mark: &'static str,
    /// The first line of that file.
    pub title: &'static str,
    /// Folders beside the cache that the program makes.
    pub folders: &'static [&'static str],
}

/// A folder that belongs to a program.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    kind: &'static Kind,
}

impl Place {
    /// Makes a folder the program's own, emptied if `fresh`, unless it has other content.
    pub fn take(folder: &Path, fresh: bool, kind: &'static Kind) -> anyhow::Result<Self> {
        let place = Self { folder: folder.to_owned(), kind };
        place.own().with_context(|| format!("the cache's folder {}", folder.display()))?;
        if fresh {
            place.clear().with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        Ok(place)
    }

    fn own(&self) -> anyhow::Result<()> {
        if self.folder.join(self.kind.mark).is_file() {
            return Ok(());
        }
        match fs::read_dir(&self.folder).map(Iterator::count) {
            Ok(0) => {}
            Ok(_) => bail!("has other content: name an empty folder or a new one with `--cache`"),
            Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(&self.folder)?,
            Err(error) => return Err(error.into()),
        }
        self.note("")
    }

    /// Removes the rows, the other folders and the note. Files that the user put into the folder stay.
    fn clear(&self) -> anyhow::Result<()> {
        for name in [ROWS].iter().chain(self.kind.folders) {
            match fs::remove_dir_all(self.folder.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        self.note("")
    }

    /// The folder of the cache.
    pub fn rows(&self) -> PathBuf {
        self.folder.join(ROWS)
    }

    /// One of the folders beside the cache.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The lines that the program has kept in its mark.
    pub fn noted(&self) -> String {
        fs::read_to_string(self.folder.join(self.kind.mark)).unwrap_or_default()
    }

    /// Keeps some lines in the mark, for later runs.
    pub fn note(&self, lines: &str) -> anyhow::Result<()> {
        let Kind { mark, title, .. } = self.kind;
        // In one step, so that a kill in between costs nothing.
        let draft = self.folder.join(format!("{mark}.{}", std::process::id()));
        fs::write(&draft, format!("{title}\n{lines}"))?;
        Ok(fs::rename(&draft, self.folder.join(mark))?)
    }

    /// The bytes of the cache on disk.
    pub fn bytes(&self) -> u64 {
        bytes(&self.rows())
    }
}

/// The bytes of all files below a folder. Files come and go while a cache is in use.
fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { mark: "program.txt", title: "# made by a program", folders: &["images"] };

    #[test]
    fn a_folder_with_other_things_in_it_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("rows");
        fs::create_dir(&precious).unwrap();
        for fresh in [false, true] {
            let message = format!("{:#}", Place::take(folder.path(), fresh, &KIND).unwrap_err());
            assert!(message.contains("has other content"), "{message}");
            assert!(precious.is_dir());
        }
    }

    #[test]
    fn fresh_removes_what_the_program_made_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let place = Place::take(&folder, false, &KIND).unwrap();
        fs::create_dir_all(place.rows().join("module")).unwrap();
        fs::create_dir(place.folder("images")).unwrap();
        fs::write(place.rows().join("module/row"), [0; 100]).unwrap();
        fs::write(folder.join("notes"), "mine").unwrap();
        place.note("edits = 3\n").unwrap();
        let again = Place::take(&folder, false, &KIND).unwrap();
        assert_eq!((again.bytes(), &*again.noted()), (100, "# made by a program\nedits = 3\n"));
        let fresh = Place::take(&folder, true, &KIND).unwrap();
        assert_eq!((fresh.bytes(), &*fresh.noted()), (0, "# made by a program\n"));
        assert!(!fresh.rows().exists() && !fresh.folder("images").exists() && folder.join("notes").is_file());
    }
}
