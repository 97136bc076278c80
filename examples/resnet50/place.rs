//! The program's own folder: the cache and the images that it draws.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Distinguishes a folder of this program from all others: nothing is written to, or removed from, a folder without it.
const MARK: &str = "resnet50-example.txt";
const TITLE: &str = "A cache that the example `resnet50` of tcx made, and may remove.\n";

/// A folder that belongs to this program.
#[derive(Debug)]
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    /// Makes a folder the program's own, emptied if `fresh`, unless it holds what is not the program's.
    pub(crate) fn take(folder: &Path, fresh: bool) -> anyhow::Result<Self> {
        let place = Self { folder: folder.to_owned() };
        place.own().with_context(|| format!("the cache's folder {}", folder.display()))?;
        if fresh {
            place.clear().with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        Ok(place)
    }

    fn own(&self) -> anyhow::Result<()> {
        let mark = self.folder.join(MARK);
        if mark.is_file() {
            return Ok(());
        }
        match fs::read_dir(&self.folder).map(Iterator::count) {
            Ok(0) => {}
            Ok(_) => bail!("holds something else: name an empty folder or a new one with `--cache`"),
            Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(&self.folder)?,
            Err(error) => return Err(error.into()),
        }
        Ok(fs::write(mark, TITLE)?)
    }

    /// Removes the rows and the drawn images; whatever else somebody put into the folder stays.
    fn clear(&self) -> anyhow::Result<()> {
        for folder in [self.rows(), self.images()] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Where tcx keeps its files.
    pub(crate) fn rows(&self) -> PathBuf {
        self.folder.join("rows")
    }

    /// Where the images are that this program draws.
    pub(crate) fn images(&self) -> PathBuf {
        self.folder.join("images")
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
    fn fresh_removes_the_rows_and_the_drawn_images_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let place = Place::take(&folder, false).unwrap();
        fs::create_dir_all(place.rows().join("module")).unwrap();
        fs::create_dir(place.images()).unwrap();
        fs::write(place.rows().join("module/row"), [0; 100]).unwrap();
        fs::write(folder.join("notes"), "mine").unwrap();
        assert_eq!(Place::take(&folder, false).unwrap().bytes(), 100);
        assert_eq!(Place::take(&folder, true).unwrap().bytes(), 0);
        assert!(!place.rows().exists() && !place.images().exists() && folder.join("notes").is_file());
    }
}
