//! Finds and opens the modules of a cache directory, or of one in an object store.

pub(crate) mod add;
pub(crate) mod destination;
pub(crate) mod jobs;
pub(crate) mod place;
pub(crate) mod received;
pub(crate) mod sessions;
pub(crate) mod specs;
#[cfg(feature = "remote")]
pub(crate) mod store;
#[cfg(not(feature = "remote"))]
#[path = "without_store.rs"]
pub(crate) mod store;
pub(crate) mod stored_file;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tcx_store::{
    Inspection, KeyType, Lookup, LookupOptions, OnMismatch, Options, Spec, Store, module_of_folder,
};

pub(crate) use crate::cache::place::all;
use crate::failure::{Code, Failure, Result};
use crate::text::{human, ids};

/// The options of a store that a command opens: rows are sealed by a flush only.
pub(crate) fn options(read_only: bool) -> Options {
    Options { read_only, ..Options::default() }
}

/// The modules to work on: the one named, or all.
pub(crate) fn chosen(cache: &Path, module: Option<&str>) -> Result<Vec<String>> {
    match module {
        Some(module) => folder(cache, module).map(|_| vec![module.to_owned()]),
        None => all(cache),
    }
}

/// The folder of a module.
///
/// # Errors
///
/// Returns an error if there is no such module; the message names the modules of the cache.
pub(crate) fn folder(cache: &Path, module: &str) -> Result<PathBuf> {
    named(&all(cache)?, module, cache.display())?;
    Ok(cache.join(module))
}

/// Fails if a module is not among those of a cache, which are some.
pub(crate) fn named(found: &[String], module: &str, cache: impl Display) -> Result<()> {
    let others = match found {
        found if found.iter().any(|own| own == module) => return Ok(()),
        [only] => format!("its only module is {only}"),
        _ => format!("its modules are {}", found.join(", ")),
    };
    Err(Failure::new(Code::NotFound, format!("no module `{module}` in {cache}; {others}")))
}

/// Inspects a module.
pub(crate) fn inspect(cache: &Path, module: &str) -> Result<Inspection> {
    Ok(Inspection::open(&folder(cache, module)?)?)
}

/// The bytes of all files of tcx in the folder.
pub(crate) fn bytes(inspection: &Inspection) -> u64 {
    let others = inspection.other_files();
    let segments: u64 = inspection.segments().map(|own| own.bytes).sum();
    segments + others.change_bytes + others.run_bytes + others.temporary_bytes
}

/// Opens the store of an existing module.
pub(crate) fn open(cache: &Path, module: &str, options: &Options) -> Result<Arc<Store>> {
    let spec = spec(cache, module)?;
    Ok(Store::open(cache, spec, &in_folder(module, options))?)
}

/// Whether a folder is that of one identity of a module, beside that of the module.
pub(crate) fn is_separate(folder: &str) -> bool {
    module_of_folder(folder).is_some_and(|module| module != folder)
}

/// These options, to open the folder of this name.
pub(crate) fn in_folder(folder: &str, options: &Options) -> Options {
    let on_mismatch = if is_separate(folder) { OnMismatch::Separate } else { OnMismatch::Refuse };
    Options { on_mismatch, ..options.clone() }
}

/// Looks up the rows of these keys, without counting hits and misses.
pub(crate) fn peek(store: &Store, key_type: KeyType, keys: &[&[u8]], view: u32) -> Result<Lookup> {
    Ok(store.lookup_with(ids::keys(key_type, keys, view)?, LookupOptions::uncounted())?)
}

/// The bytes of a leaf of a row that was found; `None` if it has no value.
pub(crate) fn value(of: &Lookup, leaf: usize, position: usize) -> Option<&[u8]> {
    of.is_present(leaf, position).then(|| of.bytes(leaf, position))
}

/// The spec of an existing module.
///
/// # Errors
///
/// Returns an error if the folder was renamed: its store would be opened in another place.
pub(crate) fn spec(cache: &Path, module: &str) -> Result<Spec> {
    let spec = Spec::read(&folder(cache, module)?)?;
    check_name(&spec, module)?;
    Ok(spec)
}

/// Fails if the folder of this name contains another module.
pub(crate) fn check_name(spec: &Spec, folder: &str) -> Result<()> {
    let id = spec.module_id();
    let own = if is_separate(folder) { spec.separate_folder() } else { id.to_owned() };
    if own == folder {
        return Ok(());
    }
    Err(Failure::new(
        Code::Unfit,
        format!("the folder {folder} contains the module `{id}`; rename the folder to {own}"),
    ))
}

/// The hidden rows of a module: those that it may have beside the rows that are served.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Hidden {
    /// Segments whose rows cannot be read.
    pub(crate) damaged_segments: u64,
    /// Whether every change was verified. Rows before a change that was not count as invalidated.
    pub(crate) sound_changes: bool,
}

impl Default for Hidden {
    fn default() -> Self {
        Self { damaged_segments: 0, sound_changes: true }
    }
}

impl Hidden {
    pub(crate) fn of(inspection: &Inspection) -> Self {
        Self {
            damaged_segments: inspection.segments().filter(|own| own.state.hides_rows()).count() as u64,
            sound_changes: inspection.has_sound_changes(),
        }
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            damaged_segments: self.damaged_segments + other.damaged_segments,
            sound_changes: self.sound_changes && other.sound_changes,
        }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.damaged_segments == 0 && self.sound_changes
    }

    /// The messages for the user.
    pub(crate) fn lines(self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.damaged_segments > 0 {
            let segments = human::counted(self.damaged_segments, "segment");
            lines.push(format!(
                "the rows of {segments} are hidden (damaged, unreadable, or dependent on a missing change); \
                 `tcx verify` reports the cause"
            ));
        }
        if !self.sound_changes {
            lines.push(
                "a change cannot be verified, so all rows before it are hidden; run `tcx verify`".to_owned(),
            );
        }
        lines
    }

    pub(crate) fn text(self, module: &str, to: &mut dyn Write) -> io::Result<()> {
        self.lines().iter().try_for_each(|line| writeln!(to, "{module}: {line}"))
    }
}
