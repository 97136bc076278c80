//! What a disk holds, and what of it a loss of power may leave.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

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

/// What a name has stood for since its directory was last synced, and since which event: first what is durable, last what is
/// seen now.
type States = Vec<(usize, Option<Node>)>;

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
    /// How much has happened.
    events: usize,
}

/// What a loss of power leaves of what was not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    Nothing,
    Everything,
    /// The names that were given or taken by the last event: what came first is lost.
    Newest,
    /// Of each name and file this or that.
    ByDice(u64),
}

impl Event {
    /// The name that a file is given or loses.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        match self {
            Self::Link(_, path) | Self::Rename(_, path) | Self::Remove(path) => path.file_name(),
            _ => None,
        }
    }
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
            self.dirs[number].insert(entry.file_name(), vec![(0, Some(node))]);
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
        self.events += 1;
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
                    states[0].1.is_some()
                });
            }
        }
    }

    fn set(&mut self, path: &Path, node: Option<Node>) {
        let (dir, name) = self.place(path);
        let states = self.dirs[dir].entry(name.to_owned()).or_insert_with(|| vec![(0, None)]);
        states.push((self.events, node));
    }

    fn node(&self, path: &Path) -> Option<Node> {
        let (dir, name) = self.place(path);
        self.dirs[dir].get(name)?.last()?.1
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

    /// Writes what is left of the disk into the empty directory `root`.
    pub(crate) fn leave(&self, root: &Path, left: Left) {
        let seed = if let Left::ByDice(seed) = left { seed } else { 0 };
        self.leave_dir(0, root, left, &mut dice(seed));
    }

    fn leave_dir(&self, dir: usize, path: &Path, left: Left, dice: &mut impl FnMut(usize) -> usize) {
        for (name, states) in &self.dirs[dir] {
            let path = path.join(name);
            let last = states.len() - 1;
            let state = match left {
                Left::Everything => last,
                Left::Newest if states[last].0 == self.events => last,
                Left::Nothing | Left::Newest => 0,
                Left::ByDice(_) => dice(states.len()),
            };
            match states[state].1 {
                Some(Node::Dir(dir)) => {
                    fs::create_dir(&path).unwrap();
                    self.leave_dir(dir, &path, left, dice);
                }
                Some(Node::File(file)) => fs::write(&path, self.files[file].leave(left, dice)).unwrap(),
                None => {}
            }
        }
    }
}

impl Contents {
    fn leave(&self, left: Left, dice: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
        let (synced, end) = self.bytes.split_at(self.synced);
        let end = match left {
            Left::Nothing | Left::Newest => Vec::new(),
            Left::Everything => end.to_vec(),
            Left::ByDice(_) => match dice(5) {
                0 => Vec::new(),
                1 => end[..end.len() / 2].to_vec(),
                2 => vec![0; end.len()],
                3 => (0..end.len()).map(|at| (at * 167 + 13) as u8).collect(),
                _ => end.to_vec(),
            },
        };
        [synced, &end].concat()
    }
}

/// Throws that are the same for the same seed: numbers below the one given.
pub(crate) fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut throws = 0_u64;
    move |sides| {
        throws += 1;
        (xxh3_64_with_seed(&throws.to_le_bytes(), seed) % sides as u64) as usize
    }
}
