//! The images: the files of a folder, each under an id that names its place and its content.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use indicatif::HumanCount;
use tcx_examples::on_all_cores;

/// Files that are read.
const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];

/// An image in a file.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// The path below the folder and the hash of the content: a file that was edited is a new sample.
    pub(crate) id: String,
    pub(crate) file: PathBuf,
    hash: blake3::Hash,
}

impl Picture {
    /// Reads a file to the end, to know what is in it.
    pub(crate) fn of(folder: &Path, file: PathBuf) -> anyhow::Result<Self> {
        let hash = blake3::hash(&read(&file)?);
        // The same name on every system.
        let place = file.strip_prefix(folder).unwrap_or(&file);
        let parts: Vec<_> = place.iter().map(|part| part.to_string_lossy()).collect();
        Ok(Self { id: format!("{} {hash}", parts.join("/")), file, hash })
    }

    /// The content that the id names.
    pub(crate) fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let bytes = read(&self.file)?;
        ensure!(
            blake3::hash(&bytes) == self.hash,
            "{} was edited while this program ran: start again",
            self.file.display()
        );
        Ok(bytes)
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The images of an epoch, in order.
#[derive(Debug)]
pub(crate) struct Pictures {
    pub(crate) all: Vec<Picture>,
    pub(crate) folder: PathBuf,
    /// How many there were before the limit.
    found: usize,
    /// How long it took to find and hash them.
    seconds: f64,
}

impl Pictures {
    /// Finds the image files below `folder` and takes the hashes of the first `limit`.
    pub(crate) fn read(folder: &Path, limit: Option<usize>) -> anyhow::Result<Self> {
        let start = Instant::now();
        let mut files = image_files(folder)?;
        let found = files.len();
        ensure!(
            found > 0,
            "no images in {}: expected files that end in .jpg, .jpeg or .png, there or in the folders below",
            folder.display()
        );
        files.truncate(limit.unwrap_or(found));
        let all = on_all_cores(files.into_iter(), || (), |(), file| Picture::of(folder, file))?;
        Ok(Self { all, folder: folder.to_owned(), found, seconds: start.elapsed().as_secs_f64() })
    }

    pub(crate) fn introduce(&self) {
        let (taken, found) = (self.all.len(), self.found);
        let of = if taken < found { format!(" of {}", HumanCount(found as u64)) } else { String::new() };
        let (folder, seconds) = (self.folder.display(), self.seconds);
        eprintln!("images   {}{of} in {folder}, hashed in {seconds:.2} s", HumanCount(taken as u64));
    }
}

/// The image files below a folder, sorted.
fn image_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = || format!("cannot read the folder {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            // Links to folders are not followed: they may lead in circles.
            if entry.file_type().with_context(unreadable)?.is_dir() {
                folders.push(path);
            } else if is_image(&path) && path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn is_image(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    ENDINGS.contains(&&*ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of five files, of which three are named like images.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        write("c.png", "three");
        write("b/x.JPG", "two");
        write("a.jpeg", "one");
        write("notes.txt", "no image");
        write(".hidden.png", "passed over");
        folder
    }

    fn read(folder: &tempfile::TempDir, limit: Option<usize>) -> Vec<String> {
        let pictures = Pictures::read(folder.path(), limit).unwrap();
        pictures.all.into_iter().map(|picture| picture.id).collect()
    }

    #[test]
    fn files_come_in_order_under_their_path_and_hash() {
        let folder = folder();
        let hash = |content: &str| blake3::hash(content.as_bytes());
        let expected = [("a.jpeg", "one"), ("b/x.JPG", "two"), ("c.png", "three")]
            .map(|(name, content)| format!("{name} {}", hash(content)));
        assert_eq!(read(&folder, None), expected);
        assert_eq!(read(&folder, Some(2)), expected[..2]);
        assert_eq!(read(&folder, Some(9)), expected);
    }

    #[test]
    fn an_edited_file_is_another_sample() {
        let folder = folder();
        let before = Pictures::read(folder.path(), None).unwrap().all;
        fs::write(folder.path().join("a.jpeg"), "edited").unwrap();
        let after = read(&folder, None);
        assert_ne!(after[0], before[0].id);
        assert_eq!(after[1..], [&before[1], &before[2]].map(|picture| picture.id.clone()));
        let message = before[0].bytes().unwrap_err().to_string();
        assert!(message.ends_with("a.jpeg was edited while this program ran: start again"), "{message}");
        assert_eq!(before[1].bytes().unwrap(), b"two");
    }

    #[test]
    fn a_folder_without_images_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("notes.txt"), "no image").unwrap();
        let message = Pictures::read(folder.path(), None).unwrap_err().to_string();
        assert!(message.starts_with(&format!("no images in {}: ", folder.path().display())), "{message}");
        let missing = folder.path().join("missing");
        let message = Pictures::read(&missing, None).unwrap_err().to_string();
        assert_eq!(message, format!("cannot read the folder {}", missing.display()));
    }
}
