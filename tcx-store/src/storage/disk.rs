//! What a disk holds, and what of it a loss of power may leave.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// A step that changed something, or made it durable. Paths begin at the root of the disk, files are numbered as they
/// were created.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    CreateDir(PathBuf),
    CreateFile(PathBuf),
    Write(usize, Vec<u8>),
    Sync(usize),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
enum Node {
    Dir(usize),
    File(usize),
}

/// What a name has stood for since its directory was last synced: first what is durable, last what is seen now.
type States = Vec<Option<Node>>;

/// A file is only ever appended to: its first bytes are durable, the rest is not.
#[derive(Clone, Debug)]
struct Contents {
    bytes: Vec<u8>,
    synced: usize,
}

/// A tree of directories whose names and files are durable each for itself, by the word of POSIX and no more: a sync of
/// a file says nothing of its name, a sync of a directory nothing of what its names stand for, and of names that are
/// not synced any may have reached the disk without those before it, the two of a rename too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// The first is the root.
    dirs: Vec<BTreeMap<OsString, States>>,
    files: Vec<Contents>,
}

impl Disk {
    /// The disk of a machine that has just started: all that is there is durable.
    pub(crate) fn read(root: &Path) -> Self {
        let mut disk = Self::default();
        disk.read_dir(root);
        disk
    }

    fn read_dir(&mut self, path: &Path) -> Node {
        let number = self.dirs.len();
        self.dirs.push(BTreeMap::new());
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let node = if entry.file_type().unwrap().is_dir() {
                self.read_dir(&entry.path())
            } else {
                let bytes = fs::read(entry.path()).unwrap();
                self.add_file(Contents { synced: bytes.len(), bytes })
            };
            self.dirs[number].insert(entry.file_name(), vec![Some(node)]);
        }
        Node::Dir(number)
    }

    fn add_file(&mut self, contents: Contents) -> Node {
        self.files.push(contents);
        Node::File(self.files.len() - 1)
    }

    /// How many files were ever created.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Something happens that the file system has allowed.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::CreateDir(path) => {
                self.dirs.push(BTreeMap::new());
                self.set(path, Some(Node::Dir(self.dirs.len() - 1)));
            }
            Event::CreateFile(path) => {
                let file = self.add_file(Contents { bytes: Vec::new(), synced: 0 });
                self.set(path, Some(file));
            }
            Event::Write(file, bytes) => self.files[*file].bytes.extend_from_slice(bytes),
            Event::Sync(file) => self.files[*file].synced = self.files[*file].bytes.len(),
            Event::Link(from, to) => self.set(to, self.node(from)),
            Event::Rename(from, to) => {
                self.set(to, self.node(from));
                self.set(from, None);
            }
            Event::Remove(path) => self.set(path, None),
            Event::SyncDir(path) => {
                let dir = self.dir(path);
                self.dirs[dir].retain(|_, states| {
                    states.drain(..states.len() - 1);
                    states[0].is_some()
                });
            }
        }
    }

    fn set(&mut self, path: &Path, node: Option<Node>) {
        let (dir, name) = self.place(path);
        self.dirs[dir].entry(name.to_owned()).or_insert_with(|| vec![None]).push(node);
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let (dir, name) = self.place(path);
        *self.dirs[dir].get(name)?.last()?
    }

    fn place<'a>(&self, path: &'a Path) -> (usize, &'a OsStr) {
        (self.dir(path.parent().unwrap()), path.file_name().unwrap())
    }

    fn dir(&self, path: &Path) -> usize {
        if path == Path::new("") {
            return 0;
        }
        match self.node(path) {
            Some(Node::Dir(dir)) => dir,
            other => panic!("{} is no directory: {other:?}", path.display()),
        }
    }

    /// Writes what is left of the disk into the empty directory `root`. `pick` is asked what became of a thing that was
    /// not synced, and answers with a number below the one it is given: 0 is that nothing of it is left, the last
    /// that it is whole.
    pub(crate) fn leave(&self, root: &Path, mut pick: impl FnMut(usize) -> usize) {
        self.leave_dir(0, root, &mut pick);
    }

    fn leave_dir(&self, dir: usize, path: &Path, pick: &mut impl FnMut(usize) -> usize) {
        for (name, states) in &self.dirs[dir] {
            let path = path.join(name);
            match states[if states.len() == 1 { 0 } else { pick(states.len()) }] {
                Some(Node::Dir(dir)) => {
                    fs::create_dir(&path).unwrap();
                    self.leave_dir(dir, &path, pick);
                }
                Some(Node::File(file)) => fs::write(&path, self.files[file].leave(pick)).unwrap(),
                None => {}
            }
        }
    }
}

impl Contents {
    fn leave(&self, pick: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let (synced, rest) = self.bytes.split_at(self.synced);
        if rest.is_empty() {
            return synced.to_vec();
        }
        let rest = match pick(5) {
            0 => Vec::new(),
            1 => rest[..rest.len() / 2].to_vec(),
            2 => vec![0; rest.len()],
            3 => (0..rest.len()).map(|at| (at * 167 + 13) as u8).collect(),
            _ => rest.to_vec(),
        };
        [synced, &rest].concat()
    }
}
