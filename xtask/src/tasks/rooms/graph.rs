//! Which room uses which, and the circles among them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{Module, Source};

/// The rooms of a crate.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// The rooms that a room uses, with the places (`file:line`) where it does.
    edges: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Paths to what the root file itself defines: it uses every room, so no room may use it.
    pub(super) to_root: Vec<String>,
}

/// What a path at the root of a crate leads to.
enum Target {
    Room(String),
    OtherCrate,
    RootFile,
}

/// The names at the root of a crate.
struct Names {
    rooms: BTreeSet<String>,
    /// What `use` and `#[macro_export]` bring there, with the first segment of its path.
    imported: BTreeMap<String, String>,
}

impl Graph {
    /// Follows the modules of a crate from its root file, named from the folder `checkout` on.
    pub(super) fn read(checkout: &Path, root_file: &Path) -> Self {
        let sources = read_all(checkout, root_file);
        let names = Names::of(&sources);
        let mut graph = Self::default();
        for (file, source) in &sources {
            for path in &source.paths {
                let (Some(from), Some(first)) = (path.from.first(), path.segments.first()) else { continue };
                let place = format!("{}:{}", file.display(), path.line);
                match names.target(first) {
                    Target::Room(room) => graph.add(from, room, place),
                    Target::OtherCrate => {}
                    Target::RootFile => {
                        graph.to_root.push(format!("{place} uses `crate::{}`", path.segments.join("::")));
                    }
                }
            }
        }
        graph
    }

    fn add(&mut self, from: &str, to: String, place: String) {
        if from != to {
            let places = self.edges.entry(from.to_owned()).or_default().entry(to).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }

    /// The shortest circles that share no room.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let mut all: Vec<Vec<String>> =
            self.edges.keys().filter_map(|room| self.circle_through(room)).collect();
        all.sort_by_key(Vec::len);
        let mut seen = BTreeSet::new();
        all.retain(|circle| {
            let is_new = circle.iter().all(|room| !seen.contains(room));
            seen.extend(circle.iter().filter(|_| is_new).cloned());
            is_new
        });
        all
    }

    /// The shortest way from a room back to it.
    fn circle_through(&self, start: &str) -> Option<Vec<String>> {
        let mut ways = VecDeque::from([vec![start.to_owned()]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop_front() {
            for next in self.edges.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    ways.push_back([&way[..], std::slice::from_ref(next)].concat());
                }
            }
        }
        None
    }

    /// A circle for people, edge by edge.
    pub(super) fn describe(&self, circle: &[String]) -> String {
        let mut text = String::from("rooms use each other in a circle:");
        for (from, to) in circle.iter().zip(circle.iter().cycle().skip(1)) {
            let places = &self.edges[from][to];
            // Writing into a string cannot fail.
            let _ = write!(text, "\n    {from} uses {to} in {}", places[..places.len().min(8)].join(", "));
            if places.len() > 8 {
                let _ = write!(text, " and {} more places", places.len() - 8);
            }
        }
        text + "\n  move what one of these uses into the room that both build on, or into the room that uses it"
    }
}

impl Names {
    fn of(sources: &[(PathBuf, Source)]) -> Self {
        let mut names = Self { rooms: BTreeSet::new(), imported: BTreeMap::new() };
        for (_, source) in sources {
            match source.own.first() {
                None => {
                    names.rooms.extend(source.modules.iter().map(|module| module.path[0].clone()));
                    let imports = source.paths.iter().filter(|path| path.from.is_empty());
                    names.imported.extend(imports.filter_map(|path| {
                        Some((path.imported_as.clone()?, path.segments.first()?.clone()))
                    }));
                }
                Some(room) => {
                    names.imported.extend(source.macros.iter().map(|name| (name.clone(), room.clone())));
                }
            }
        }
        names
    }

    fn target(&self, first: &str) -> Target {
        match self.imported.get(first) {
            _ if self.rooms.contains(first) => Target::Room(first.to_owned()),
            Some(room) if self.rooms.contains(room) => Target::Room(room.clone()),
            Some(_) => Target::OtherCrate,
            None => Target::RootFile,
        }
    }
}

/// The files of a crate, its root file first.
fn read_all(checkout: &Path, root_file: &Path) -> Vec<(PathBuf, Source)> {
    let mut sources = vec![(root_file.to_owned(), parse(checkout, root_file, &[]))];
    let mut at = 0;
    while let Some((file, source)) = sources.get(at) {
        let children = source.modules.iter().filter(|module| !module.is_inline).map(|module| {
            let file = place(checkout, file, &source.own, module);
            let source = parse(checkout, &file, &module.path);
            (file, source)
        });
        let children: Vec<_> = children.collect();
        sources.extend(children);
        at += 1;
    }
    sources
}

fn parse(checkout: &Path, file: &Path, own: &[String]) -> Source {
    let text =
        fs::read_to_string(checkout.join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    Source::parse(&text, own).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The file of a module that is declared in `file`, which holds the module `own`.
fn place(checkout: &Path, file: &Path, own: &[String], module: &Module) -> PathBuf {
    let folder = file.parent().unwrap();
    if let Some(name) = &module.file {
        return folder.join(name);
    }
    let is_folder_itself =
        file.file_stem().is_some_and(|stem| ["lib", "main", "mod"].iter().any(|name| stem == *name));
    let mut place = if is_folder_itself { folder.to_owned() } else { file.with_extension("") };
    // The names between are those of modules within the file.
    place.extend(&module.path[own.len()..]);
    let beside = place.with_extension("rs");
    if checkout.join(&beside).is_file() { beside } else { place.join("mod.rs") }
}
