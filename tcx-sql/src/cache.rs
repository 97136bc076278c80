//! Where a cache is whose modules are tables.

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "remote")]
use tcx_remote::{ClientOptions, Location, RemoteCache, default_near_bytes, default_near_tier};
use tcx_store::{Pin, PinnedRows, modules, url_scheme};

use crate::error::Result;

/// A cache in a directory or, with the feature `remote`, in an object store.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let cache = tcx_sql::Cache::at(dir.path())?;
/// assert!(cache.modules()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache(Place);

#[derive(Clone, Debug)]
enum Place {
    Directory(PathBuf),
    #[cfg(feature = "remote")]
    Store(Box<RemoteCache>),
}

impl Cache {
    /// The cache at a path or, with the feature `remote`, at the URL of an object store. Its settings, its credentials and the near tier are
    /// those of the environment, as for the command `tcx`.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting of an object store is unknown or missing, if the near tier cannot be made, or for a URL without the
    /// feature `remote`.
    pub fn at(place: &Path) -> Result<Self> {
        #[cfg(feature = "remote")]
        if let Location::Store(url) = Location::of_path(place)? {
            let cache = RemoteCache::new(url, &default_near_tier()?, ClientOptions::default())?;
            return Ok(cache.near_bytes(default_near_bytes()?).into());
        }
        if let Some(scheme) = url_scheme(place) {
            let what = format!(
                "cannot open a cache at a URL ({scheme}://…): it needs the feature `remote` of tcx-sql"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, what).into());
        }
        Ok(Self(Place::Directory(place.to_owned())))
    }

    /// The modules, in the order of their names.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be listed, or the store cannot be reached.
    pub fn modules(&self) -> Result<Vec<String>> {
        Ok(match &self.0 {
            Place::Directory(dir) => modules(dir)?,
            #[cfg(feature = "remote")]
            Place::Store(cache) => cache.modules()?,
        })
    }

    /// The rows of a module at this moment, or the pinned ones.
    pub(crate) fn rows(&self, module: &str, pin: Option<&Pin>) -> tcx_store::Result<PinnedRows> {
        match (&self.0, pin) {
            (Place::Directory(dir), None) => PinnedRows::open(&dir.join(module)),
            (Place::Directory(dir), Some(pin)) => PinnedRows::open_pinned(&dir.join(module), pin),
            #[cfg(feature = "remote")]
            (Place::Store(cache), pin) => cache.pinned_rows(module, pin),
        }
    }

    /// The absolute path or the URL, for another process.
    #[cfg(feature = "distributed")]
    pub(crate) fn place(&self) -> std::io::Result<String> {
        match &self.0 {
            Place::Directory(dir) => {
                std::path::absolute(dir)?.into_os_string().into_string().map_err(|path| {
                    let what = format!(
                        "the path {} is not UTF-8, and cannot be sent to another process",
                        path.display()
                    );
                    std::io::Error::new(std::io::ErrorKind::InvalidInput, what)
                })
            }
            #[cfg(feature = "remote")]
            Place::Store(cache) => Ok(cache.url().to_string()),
        }
    }
}

#[cfg(feature = "remote")]
impl From<RemoteCache> for Cache {
    fn from(cache: RemoteCache) -> Self {
        Self(Place::Store(Box::new(cache)))
    }
}

/// The path, or the URL.
impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Directory(dir) => dir.display().fmt(f),
            #[cfg(feature = "remote")]
            Place::Store(cache) => cache.url().fmt(f),
        }
    }
}
