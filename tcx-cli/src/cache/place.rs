//! Which directory is a cache: one that contains modules.

use std::fs;
use std::path::{Path, PathBuf};

use tcx_store::{is_module, modules, url_scheme};

use crate::failure::{Code, Failure, Result};

/// The number of entries of a directory that are looked at for an advice: it could be any directory.
const LOOKED_AT: usize = 1000;
/// The number of cache directories that an advice names.
const NAMED: usize = 3;

/// The modules of a cache directory.
///
/// # Errors
///
/// Returns an error if the directory does not exist, contains no modules, or is the folder of a module.
pub(crate) fn all(cache: &Path) -> Result<Vec<String>> {
    let found = any(cache)?;
    if found.is_empty() { Err(no_modules(cache)) } else { Ok(found) }
}

/// Fails for the URL of an object store.
pub(crate) fn check_directory(cache: &Path) -> Result<()> {
    let Some(scheme) = url_scheme(cache) else { return Ok(()) };
    Err(Failure::usage(format!(
        "expected a cache directory, found a URL ({scheme}://…): name a directory of this machine here; `tcx pull DIR URL` copies the modules \
         of a store into one, and `tcx push DIR URL` those of a directory into a store"
    )))
}

/// Like [`all`], for a directory that may have no modules.
pub(crate) fn any(cache: &Path) -> Result<Vec<String>> {
    check_directory(cache)?;
    match modules(cache) {
        Ok(found) if found.is_empty() && is_module(cache) => {
            let message = format!(
                "{} is the folder of a module; name the cache directory, {}",
                cache.display(),
                parent(cache).display()
            );
            Err(Failure::new(Code::NotFound, message))
        }
        Ok(found) => Ok(found),
        Err(_) if !cache.is_dir() => {
            let message =
                format!("no directory {}; name the directory that `Cache::open` gets", cache.display());
            Err(Failure::new(Code::NotFound, message))
        }
        Err(error) => Err(error.into()),
    }
}

/// Fails unless rows can be added here: a mistyped path must not create a cache, unless `create` allows it.
pub(crate) fn check_target(cache: &Path, create: bool) -> Result<()> {
    match any(cache) {
        Err(_) if create && !cache.exists() => Ok(()),
        Ok(found) if found.is_empty() && !create => Err(or_create(no_modules(cache))),
        Err(failure) if failure.code == Code::NotFound && !cache.exists() => Err(or_create(failure)),
        found => found.map(drop),
    }
}

pub(crate) fn or_create(mut failure: Failure) -> Failure {
    failure.message.push_str(", or pass --create to create a cache there");
    failure
}

/// Names the cache directories nearby, since a wrong level is the usual mistake.
fn no_modules(dir: &Path) -> Failure {
    let inside = caches_in(dir);
    let advice = match (&inside[..], cache_around(dir)) {
        ([], None) => "name the directory that `Cache::open` gets".to_owned(),
        ([], Some(cache)) => format!("name the cache directory that contains it, {}", cache.display()),
        ([only], _) => format!("name the cache directory in it, {only}"),
        (several, _) => format!("name one of the cache directories in it, such as {}", several.join(", ")),
    };
    Failure::new(Code::NotFound, format!("no modules in {}; {advice}", dir.display()))
}

/// The first cache directories in a directory, in the order of their names.
fn caches_in(dir: &Path) -> Vec<String> {
    let is_cache = |path: &PathBuf| folders(path).iter().any(|folder| is_module(folder));
    let found = folders(dir).into_iter().filter(is_cache);
    found.take(NAMED).map(|path| path.display().to_string()).collect()
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let entries = entries.take(LOOKED_AT).filter_map(Result::ok);
    // Links could lead anywhere.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut folders: Vec<PathBuf> = entries.filter(is_folder).map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// The cache that a directory is in: beside its modules, or in the folder of one.
fn cache_around(dir: &Path) -> Option<PathBuf> {
    let above = parent(dir);
    if is_module(&above) {
        return Some(parent(&above));
    }
    modules(&above).is_ok_and(|found| !found.is_empty()).then_some(above)
}

fn parent(dir: &Path) -> PathBuf {
    // `.` and `..` have no parent by name.
    match (dir.file_name(), dir.parent()) {
        (Some(_), Some(parent)) if parent == Path::new("") => PathBuf::from("."),
        (Some(_), Some(parent)) => parent.to_owned(),
        _ => dir.join(".."),
    }
}
