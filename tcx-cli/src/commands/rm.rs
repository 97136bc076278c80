//! `tcx rm`: removes a module, or invalidates some of its rows.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tcx_store::{Inspection, KeyType, OtherFiles};

use crate::args::{Deleting, Module};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::ask::confirm;
use crate::console::output::{Output, Report};
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;
use crate::text::ids;

/// The prefix of a folder that is being removed. No module id begins with it.
const ASIDE: &str = ".removed-";

/// The rows to invalidate; if empty, the whole module is removed.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) ids: Vec<String>,
    pub(super) prefixes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Removed {
    dry_run: bool,
    module: String,
    /// Of the whole module.
    bytes: Option<u64>,
    ids: Vec<String>,
    prefixes: Vec<String>,
    /// The live rows of these ids and prefixes, each once.
    rows: Option<u64>,
    /// The ids and prefixes without a row.
    unmatched: Vec<String>,
    #[serde(skip)]
    matches: Matches,
}

/// The number of live rows of each id and prefix.
#[derive(Debug, Default)]
struct Matches {
    ids: Vec<u64>,
    prefixes: Vec<u64>,
    rows: u64,
}

pub(super) fn run(module: &Module, part: &Part, deleting: Deleting, output: &Output) -> Result<Verdict> {
    // A script with an unset variable would pass it.
    if part.prefixes.iter().any(String::is_empty) {
        return Err(Failure::usage(
            "every id begins with an empty prefix; to remove the whole module, omit --prefix",
        ));
    }
    let is_whole = part.ids.is_empty() && part.prefixes.is_empty();
    let store = StoreCache::at(&module.dir)?;
    if is_whole && store.is_some() {
        return Err(Failure::usage(
            "a whole module is removed from directories only: remove its prefix from the object store with the tools of its provider, or \
             invalidate rows with --id and --prefix",
        ));
    }
    let bytes = if is_whole { Some(whole(module, deleting)?) } else { None };
    let matches =
        if is_whole { Matches::default() } else { invalidate(module, store.as_ref(), part, deleting)? };
    let unmatched = matches.unmatched(part);
    let verdict = Verdict::good_if(unmatched.is_empty());
    output.show(&Removed {
        dry_run: deleting.dry_run,
        module: module.module.clone(),
        bytes,
        ids: part.ids.clone(),
        prefixes: part.prefixes.clone(),
        rows: (!is_whole).then_some(matches.rows),
        unmatched,
        matches,
    })?;
    Ok(verdict)
}

/// Removes the folder of a module. It is renamed first, so that no program sees half of it.
fn whole(module: &Module, deleting: Deleting) -> Result<u64> {
    let folder = cache::folder(&module.dir, &module.module)?;
    let inspection = Inspection::open(&folder);
    // A module whose change 0 is damaged can be removed too.
    let bytes = inspection.as_ref().map_or(0, cache::bytes);
    check_files(&folder)?;
    if deleting.dry_run {
        return Ok(bytes);
    }
    let rows = inspection.iter().flat_map(|own| own.segments().map(|own| own.rows)).sum();
    let action =
        format!("remove `{}` with {} ({})", module.module, human::counted(rows, "row"), human::size(bytes));
    confirm(deleting.yes, &action)?;
    drop(inspection);
    remove_module(&module.dir, &module.module)?;
    Ok(bytes)
}

/// Fails if a folder contains files that tcx did not write.
fn check_files(folder: &Path) -> Result<()> {
    let unrecognised = OtherFiles::read(folder)?.unrecognised;
    if unrecognised.is_empty() {
        return Ok(());
    }
    let message = format!(
        "cannot remove {}: it contains files that tcx did not write ({}); move them away first",
        folder.display(),
        unrecognised.join(", ")
    );
    Err(Failure::new(Code::Unfit, message))
}

/// Removes the folder of a module, unless it contains files that tcx did not write. It is renamed first.
pub(super) fn remove_module(dir: &Path, module: &str) -> Result<()> {
    let folder = dir.join(module);
    check_files(&folder)?;
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
    let aside = dir.join(format!("{ASIDE}{module}-{nanos}"));
    fs::rename(&folder, &aside).map_err(|error| Failure::file("move aside", &folder, &error))?;
    remove_folder(&aside)
}

pub(super) fn remove_folder(path: &Path) -> Result<()> {
    fs::remove_dir_all(path).map_err(|error| Failure::file("remove", path, &error))
}

/// Folders of modules whose removal was interrupted.
pub(super) fn leftovers(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::file("list", dir, &error))?;
    let is_one = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(ASIDE));
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| is_one(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

/// Invalidates the ids and prefixes, also those without a row: another program may be computing one.
fn invalidate(
    module: &Module,
    place: Option<&StoreCache>,
    part: &Part,
    deleting: Deleting,
) -> Result<Matches> {
    let Module { dir, module } = module;
    if let Some(place) = place {
        place.chosen(Some(module))?;
    }
    let open = |read_only| match place {
        Some(place) => place.open(module, &cache::options(read_only)),
        None => cache::open(dir, module, &cache::options(read_only)),
    };
    let key_type = place.map_or_else(|| cache::spec(dir, module), |place| place.spec(module))?.key_type();
    let keys = part.ids.iter().map(|id| ids::parse(key_type, id)).collect::<Result<Vec<_>>>()?;
    let prefixes = part.prefixes.iter().map(|prefix| match key_type {
        KeyType::Int => Err(Failure::usage("integer ids have no prefix; name the ids with --id")),
        key_type => ids::parse(key_type, prefix),
    });
    let prefixes = prefixes.collect::<Result<Vec<_>>>()?;
    let mut counting = Counting::new(&keys, &prefixes);
    if place.is_some() {
        // Two machines may have computed a row.
        let mut counted = HashSet::new();
        open(true)?.each_key(|key, view| {
            if counting.is_doomed(key) && counted.insert((key.to_vec(), view)) {
                counting.count(key);
            }
        })?;
    } else {
        let inspection = cache::inspect(dir, module)?;
        inspection.rows_of(Vec::new()).filter_map(Result::ok).for_each(|row| counting.count(row.key));
    }
    let matches = counting.counted;
    if deleting.dry_run {
        return Ok(matches);
    }
    let mut what: Vec<String> = prefixes_text(&part.prefixes);
    if !keys.is_empty() {
        what.insert(0, human::counted(keys.len() as u64, "id"));
    }
    let what = what.join(" and ");
    let rows = human::counted(matches.rows, "row");
    confirm(deleting.yes, &format!("invalidate {what} of `{module}` ({rows})"))?;
    let store = open(false)?;
    if !keys.is_empty() {
        store.invalidate(&ids::keys(key_type, &keys, 0)?)?;
    }
    prefixes.iter().try_for_each(|prefix| store.invalidate_prefix(prefix))?;
    Ok(matches)
}

/// Counts the live rows of ids and prefixes, key by key.
struct Counting<'a> {
    /// The places of each id, which may be named twice.
    numbers: HashMap<&'a [u8], Vec<usize>>,
    prefixes: &'a [Vec<u8>],
    counted: Matches,
}

impl<'a> Counting<'a> {
    fn new(keys: &'a [Vec<u8>], prefixes: &'a [Vec<u8>]) -> Self {
        let mut numbers: HashMap<&[u8], Vec<usize>> = HashMap::new();
        keys.iter().enumerate().for_each(|(number, key)| numbers.entry(key).or_default().push(number));
        let counted = Matches { ids: vec![0; keys.len()], prefixes: vec![0; prefixes.len()], rows: 0 };
        Self { numbers, prefixes, counted }
    }

    fn is_doomed(&self, key: &[u8]) -> bool {
        self.numbers.contains_key(key) || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    fn count(&mut self, key: &[u8]) {
        let own = self.numbers.get(key).map_or(&[][..], Vec::as_slice);
        for number in own {
            self.counted.ids[*number] += 1;
        }
        let mut is_doomed = !own.is_empty();
        for (prefix, count) in self.prefixes.iter().zip(&mut self.counted.prefixes) {
            if key.starts_with(prefix) {
                *count += 1;
                is_doomed = true;
            }
        }
        self.counted.rows += u64::from(is_doomed);
    }
}

impl Matches {
    fn unmatched(&self, part: &Part) -> Vec<String> {
        let ids = part.ids.iter().zip(&self.ids);
        let named = ids.chain(part.prefixes.iter().zip(&self.prefixes));
        named.filter(|(_, rows)| **rows == 0).map(|(name, _)| name.clone()).collect()
    }
}

fn prefixes_text(prefixes: &[String]) -> Vec<String> {
    prefixes.iter().map(|prefix| format!("all ids that begin with {prefix:?}")).collect()
}

impl Report for Removed {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { dry_run, module, bytes, ids, prefixes, matches, .. } = self;
        let would = if *dry_run { "would be " } else { "" };
        if let Some(bytes) = bytes {
            return writeln!(to, "{module}: {would}removed, {}", human::size(*bytes));
        }
        let rows = |rows: &u64| if *rows == 0 { "no rows".to_owned() } else { human::counted(*rows, "row") };
        for (id, own) in ids.iter().zip(&matches.ids) {
            writeln!(to, "{module}: {would}invalidated: {id} ({})", rows(own))?;
        }
        for (prefix, own) in prefixes.iter().zip(&matches.prefixes) {
            writeln!(to, "{module}: {would}invalidated: {prefix}… ({})", rows(own))?;
        }
        if *dry_run { Ok(()) } else { writeln!(to, "`tcx compact` and `tcx gc` free the space") }
    }
}
