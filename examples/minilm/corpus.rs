//! The texts: paragraphs of the documentation in a folder, each under an id that names its content.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail};

use crate::paragraphs::paragraphs;

/// Files that are read.
const ENDINGS: [&str; 6] = ["md", "markdown", "txt", "rst", "adoc", "text"];
/// Names, less their endings, of files that lie in every folder and say nothing about it.
const SKIPPED: [&str; 9] = [
    "changelog",
    "changes",
    "history",
    "releases",
    "license",
    "copying",
    "code_of_conduct",
    "contributing",
    "security",
];

/// A text and where it was found.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    /// The hash of the text. It can never mean another text: one that was edited is a new sample.
    pub(crate) id: String,
    pub(crate) text: String,
    file: Rc<Path>,
    line: usize,
}

impl Passage {
    pub(crate) fn new(text: String, file: &Rc<Path>, line: usize) -> Self {
        Self { id: blake3::hash(text.as_bytes()).to_string(), text, file: file.clone(), line }
    }

    /// The same passage after an edit.
    pub(crate) fn edited(&self, text: String) -> Self {
        Self::new(text, &self.file, self.line)
    }

    /// File and line, as editors and terminals understand them.
    pub(crate) fn place(&self) -> impl fmt::Display {
        format!("{}:{}", self.file.display(), self.line)
    }
}

/// The texts of an epoch, in order.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) passages: Vec<Passage>,
    /// How many different paragraphs there were before the limit.
    pub(crate) found: usize,
    pub(crate) folder: PathBuf,
}

impl Corpus {
    /// Reads at most `limit` paragraphs of the text files below `folder`, or else of the documentation that
    /// Cargo has downloaded, or else, where dependencies are vendored, of this project's own.
    pub(crate) fn read(folder: Option<&Path>, limit: usize) -> anyhow::Result<Self> {
        let folders = match folder {
            Some(folder) => vec![folder.to_owned()],
            None => registry().into_iter().chain([own_project()]).collect(),
        };
        for folder in &folders {
            let corpus = Self::of(folder, limit)?;
            if corpus.found > 0 {
                return Ok(corpus);
            }
        }
        bail!(
            "no prose in {}: expected text files ({}) with paragraphs of eight words or more",
            folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" or "),
            ENDINGS.join(", ")
        )
    }

    fn of(folder: &Path, limit: usize) -> anyhow::Result<Self> {
        let mut passages = Vec::new();
        // The same text in two places is one sample: the first place is remembered.
        let mut seen = HashSet::new();
        for file in text_files(folder)? {
            // Text in another encoding is no error of the user's.
            let Ok(document) = std::fs::read_to_string(&file) else { continue };
            let file: Rc<Path> = file.into();
            let read = paragraphs(&document).into_iter();
            let read = read.map(|paragraph| Passage::new(paragraph.text, &file, paragraph.line));
            passages.extend(read.filter(|passage| seen.insert(passage.id.clone())));
        }
        let found = passages.len();
        Ok(Self { passages: sample(passages, limit), found, folder: folder.to_owned() })
    }

    /// The hash of all ids in order: equal for the same texts.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for passage in &self.passages {
            hasher.update(passage.id.as_bytes());
        }
        hasher.finalize().to_string()
    }
}

/// The passages with the smallest ids, in their old order: from all files alike, and hardly any others after
/// some file was edited.
fn sample(passages: Vec<Passage>, limit: usize) -> Vec<Passage> {
    if passages.len() <= limit {
        return passages;
    }
    let mut ids: Vec<_> = passages.iter().map(|passage| passage.id.clone()).collect();
    ids.sort_unstable();
    let beyond = ids.swap_remove(limit);
    passages.into_iter().filter(|passage| passage.id < beyond).collect()
}

/// The folder in which Cargo keeps the sources of the crates that it has downloaded, if there is one.
fn registry() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let sources = cargo.or_else(|| Some(std::env::home_dir()?.join(".cargo")))?.join("registry").join("src");
    sources.is_dir().then_some(sources)
}

/// The folder of the project that this program belongs to.
fn own_project() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// The text files below a folder, sorted.
fn text_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            // Links are not followed: they may lead in circles.
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && is_wanted_folder(&path) {
                folders.push(path);
            } else if kind.is_file() && is_text(&path) {
                files.push(path);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn is_wanted_folder(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !["target", "node_modules", "tests", "benches"].contains(&&*name)
}

fn is_text(path: &Path) -> bool {
    let lower = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().to_lowercase();
    let (name, ending) = (lower(path.file_stem()), lower(path.extension()));
    let named = |skipped: &&str| name.replace('-', "_").starts_with(*skipped);
    ENDINGS.contains(&&*ending) && !SKIPPED.iter().any(named)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PROSE: &str = "This is a paragraph of more than eight words, number";

    /// A folder of three files, of which two hold text: paragraphs 0 to 3, of which 1 stands in both.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("b/.git")).unwrap();
        fs::write(folder.path().join("b/README.md"), format!("{PROSE} 0\n\n{PROSE} 1\n")).unwrap();
        fs::write(folder.path().join("notes.txt"), format!("{PROSE} 1\n\n\n{PROSE} 2\n\n{PROSE} 3")).unwrap();
        fs::write(folder.path().join("b/CHANGELOG.md"), format!("{PROSE} 4")).unwrap();
        fs::write(folder.path().join("b/.git/notes.txt"), format!("{PROSE} 5")).unwrap();
        fs::write(folder.path().join("main.rs"), format!("{PROSE} 6")).unwrap();
        fs::write(folder.path().join("latin.txt"), b"\xe9t\xe9".repeat(20)).unwrap();
        folder
    }

    fn numbers(corpus: &Corpus) -> Vec<&str> {
        corpus.passages.iter().map(|passage| &passage.text[PROSE.len() + 1..]).collect()
    }

    #[test]
    fn texts_come_in_the_order_of_files_each_once_with_its_place() {
        let folder = folder();
        let corpus = Corpus::read(Some(folder.path()), 100).unwrap();
        assert_eq!(numbers(&corpus), ["0", "1", "2", "3"]);
        let place = corpus.passages[2].place().to_string();
        assert_eq!(place, format!("{}:4", folder.path().join("notes.txt").display()));
    }

    #[test]
    fn an_id_names_a_text_and_no_place() {
        let folder = folder();
        let before = Corpus::read(Some(folder.path()), 100).unwrap();
        let notes = folder.path().join("notes.txt");
        fs::write(&notes, format!("{PROSE} 3\n\n{PROSE} two\n")).unwrap();
        let after = Corpus::read(Some(folder.path()), 100).unwrap();
        assert_eq!(numbers(&after), ["0", "1", "3", "two"]);
        assert_eq!(after.passages[2].id, before.passages[3].id);
        assert!(before.passages.iter().all(|passage| passage.id != after.passages[3].id));
        assert_ne!(before.fingerprint(), after.fingerprint());
    }

    #[test]
    fn a_limit_takes_some_texts_and_more_with_a_higher_one() {
        let folder = folder();
        let read = |limit| Corpus::read(Some(folder.path()), limit).unwrap();
        let (two, three) = (read(2), read(3));
        assert_eq!((two.passages.len(), three.passages.len(), two.found), (2, 3, 4));
        assert!(numbers(&two).iter().all(|number| numbers(&three).contains(number)));
        assert!(numbers(&three).is_sorted());
    }

    #[test]
    fn a_folder_without_text_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = Corpus::read(Some(folder.path()), 1).unwrap_err().to_string();
        assert!(message.starts_with(&format!("no prose in {}", folder.path().display())), "{message}");
        let missing = folder.path().join("missing");
        let message = Corpus::read(Some(&missing), 1).unwrap_err().to_string();
        assert_eq!(message, format!("cannot read the folder {}", missing.display()));
    }
}
