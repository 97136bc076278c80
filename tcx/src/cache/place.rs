//! Where a cache is, and where it may be: neither in the folder of a module nor inside another cache, if it is in a directory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_store::{Memory, Options, Spec, Store, Trouble, is_module, notice};

use crate::cache::remote::ObjectStore;
use crate::{Error, ErrorKind, Result};

/// How many folders of a directory are looked at: a directory with more of them is not taken for a cache.
const LOOKED_AT: usize = 1000;

/// Where the rows of a cache are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// An absolute path.
    Directory(PathBuf),
    Memory(Memory),
    Store(Box<ObjectStore>),
}

impl Place {
    /// A directory, which need not exist. A relative path is resolved now.
    ///
    /// # Errors
    ///
    /// Returns an error if no cache can be opened there.
    pub(super) fn directory(dir: &Path) -> Result<Self> {
        check_home(dir)?;
        // Modules are opened later, perhaps from another current directory: all of them belong into this one.
        let dir = std::path::absolute(dir).map_err(|error| {
            let message = format!("cannot resolve the cache directory `{}`", dir.display());
            Error::new(ErrorKind::InvalidPath, message)
                .with_remedy("pass an absolute path")
                .with_source(error)
        })?;
        if dir.exists() && !dir.is_dir() {
            let message =
                format!("cannot open a cache at {}: expected a directory, found a file", dir.display());
            return Err(Error::new(ErrorKind::InvalidPath, message).with_remedy("pass another path"));
        }
        check_place(&dir)?;
        Ok(Self::Directory(dir))
    }

    /// The directory, the URL, or `memory://`.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir,
            Self::Memory(memory) => memory.path(),
            Self::Store(store) => store.path(),
        }
    }

    /// Opens the store of a module.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub(crate) fn open(&self, spec: Spec, options: &Options) -> Result<Arc<Store>> {
        Ok(match self {
            Self::Directory(dir) => Store::open(dir, spec, options)?,
            Self::Memory(memory) => Store::open_in_memory(memory, spec, options)?,
            Self::Store(store) => store.open(spec, options)?,
        })
    }
}

/// As messages name it, after "the cache".
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(_) | Self::Store(_) => write!(f, "at {}", self.path().display()),
            Self::Memory(_) => f.write_str("in memory"),
        }
    }
}

/// Refuses what [`Cache::path`](crate::Cache::path) returns of a cache in memory: opened as a directory, it would be a new one beside
/// the program.
///
/// # Errors
///
/// Returns an error if the path is that of a cache in memory.
pub(super) fn check_directory(dir: &Path) -> Result<()> {
    let memory = Memory::new();
    if dir != memory.path() {
        return Ok(());
    }
    let message = format!("cannot open a cache at {}: it is no directory", memory.path().display());
    Err(Error::new(ErrorKind::InvalidPath, message)
        .with_remedy("call `Cache::in_memory`, whose caches share nothing, or pass a directory"))
}

/// Checks that a cache can be opened in `dir`, an absolute path.
///
/// # Errors
///
/// Returns an error that names the directory to open if `dir` is the folder of a module or inside one, or is a new directory
/// inside another cache. A cache that has modules may stay where it is.
fn check_place(dir: &Path) -> Result<()> {
    let real = resolved(dir);
    if let Some(module) = real.ancestors().find(|ancestor| is_module(ancestor)) {
        let cache = module.parent().unwrap_or(module);
        let what = if module == real { "it is" } else { "it is inside" };
        return Err(refused(dir, cache, &format!("{what} the folder of module {}", named(module))));
    }
    if module_in(&real).is_some() {
        return Ok(());
    }
    match real.parent().and_then(|parent| Some((parent, module_in(parent)?))) {
        None => Ok(()),
        Some((cache, module)) => {
            let what = format!(
                "it is inside the cache at {}, which holds module {}",
                cache.display(),
                named(&module)
            );
            Err(refused(dir, cache, &what))
        }
    }
}

/// Checks that a path as it was passed does not begin with `~`, which only a shell replaces by the home directory.
///
/// # Errors
///
/// Returns an error if it begins with a directory `~` that does not exist.
fn check_home(dir: &Path) -> Result<()> {
    let home = Path::new("~");
    if !dir.starts_with(home) || home.exists() {
        return Ok(());
    }
    let message = format!("cannot open a cache at {}: there is no directory `~` here", dir.display());
    let remedy = "pass the path of your home directory: only a shell replaces `~` by it";
    Err(Error::new(ErrorKind::InvalidPath, message).with_remedy(remedy))
}

/// Reports that a cache that is only read does not exist: everything is going to be computed, and nothing stored.
pub(super) fn report_absent(dir: &Path) {
    let dir = dir.display();
    let what = format!(
        "there is no cache at {dir}, and it is opened in mode ReadOnly: every row is computed and none is stored until another \
         process creates it; check the path"
    );
    tracing::warn!("{what}");
    notice(Trouble::Absent, what);
}

fn refused(dir: &Path, cache: &Path, what: &str) -> Error {
    let error =
        Error::new(ErrorKind::InvalidPath, format!("cannot open a cache at {}: {what}", dir.display()));
    error.with_expected(cache.display().to_string(), dir.display().to_string()).with_remedy(format!(
        "open {}, whose modules share that directory, or a directory elsewhere",
        cache.display()
    ))
}

fn named(module: &Path) -> String {
    format!("`{}`", module.file_name().unwrap_or_default().to_string_lossy())
}

/// The path without links, as far as it exists.
fn resolved(dir: &Path) -> PathBuf {
    let existing = dir.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let path = existing.and_then(|(ancestor, real)| Some(real.join(dir.strip_prefix(ancestor).ok()?)));
    path.unwrap_or_else(|| dir.to_owned())
}

/// A folder of a module in this directory, if it has one.
fn module_in(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.filter_map(Result::ok);
    // A link could lead elsewhere.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.take(LOOKED_AT).map(|entry| entry.path()).find(|folder| is_module(folder))
}

#[cfg(test)]
mod tests {
    use crate::{Cache, ErrorKind};

    /// A cache with a module in a directory.
    fn cache(dir: &std::path::Path) {
        let cache = Cache::open(dir).unwrap();
        cache.table::<Vec<i64>>("good_v1").unwrap().put(&["a"], &vec![1]).unwrap();
        cache.close().unwrap();
    }

    fn refusal(dir: impl AsRef<std::path::Path>) -> String {
        let error = Cache::open(dir).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath);
        error.to_string()
    }

    #[test]
    fn the_folder_of_a_module_is_refused_with_the_path_of_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("cache");
        cache(&path);
        let module = path.join("good_v1");
        let open = format!("; open {}, whose modules share that directory", path.display());
        for (place, what) in [
            (module.clone(), "it is the folder of module `good_v1`"),
            (module.join("sessions"), "it is inside the folder of module `good_v1`"),
            (module.join("new/newer"), "it is inside the folder of module `good_v1`"),
        ] {
            let refusal = refusal(&place);
            assert!(refusal.contains(what) && refusal.contains(&open), "{refusal}");
            assert!(!module.join("good_v1").exists());
        }
        Cache::open(&path).unwrap();
    }

    #[test]
    fn a_new_directory_inside_another_cache_is_refused_and_an_old_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let (old, new) = (path.join("old"), path.join("new"));
        cache(&old);
        cache(&path);
        let refusal = refusal(&new);
        let what =
            format!("it is inside the cache at {}, which holds module `good_v1`; open ", path.display());
        assert!(refusal.contains(&what) && !new.exists(), "{refusal}");
        Cache::open(&old).unwrap();
    }

    #[test]
    fn a_tilde_is_not_taken_for_the_name_of_a_directory() {
        let refusal = refusal("~/cache");
        assert!(refusal.contains("at ~/cache: ") && refusal.contains("home directory"), "{refusal}");
        // It is not the first part, or is meant as it is.
        let dir = tempfile::tempdir().unwrap();
        Cache::open(dir.path().join("~/cache")).unwrap();
        Cache::open("./~/cache").unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_the_folder_of_a_module_is_refused_with_the_path_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("cache");
        cache(&path);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(path.join("good_v1"), &link).unwrap();
        assert!(refusal(&link).contains(&format!("; open {}, ", path.display())));
    }
}
