//! A cache in an object store: its settings, and where its near tier is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_remote::{ClientOptions, Location, RemoteCache, StoreUrl, default_near_bytes, default_near_tier};
use tcx_store::{Options, Spec, Store};

use crate::cache::builder::CacheBuilder;
use crate::cache::place::Place;
use crate::{Error, ErrorKind, Result};

/// The settings of a cache that may be in an object store.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteSettings {
    near_tier: Option<PathBuf>,
    client: ClientOptions,
    near_bytes: Option<u64>,
    spool_bytes: Option<u64>,
}

/// The store of a cache. It contains the options of the client, which may have credentials and show none.
#[derive(Clone, Debug)]
pub(crate) struct ObjectStore {
    /// The URL, as messages name the cache.
    path: PathBuf,
    cache: RemoteCache,
}

impl ObjectStore {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn open(&self, spec: Spec, options: &Options) -> tcx_store::Result<Arc<Store>> {
        self.cache.open(spec, options)
    }
}

impl RemoteSettings {
    /// The place that a URL names. No request is made.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or a setting is not known, or if there is no directory for the near tier. It contains no credentials.
    pub(super) fn place(&self, url: &Path) -> Result<Place> {
        let location = Location::of_path(url).map_err(|error| {
            Error::new(ErrorKind::InvalidPath, error.to_string())
                .with_remedy("pass the URL of a prefix, such as s3://bucket/prefix, or a directory")
        })?;
        match location {
            Location::Directory(dir) => Place::directory(&dir),
            Location::Store(url) => self.store(url).map(|store| Place::Store(Box::new(store))),
        }
    }

    fn store(&self, url: StoreUrl) -> Result<ObjectStore> {
        let path = PathBuf::from(url.to_string());
        let failed = |error: io::Error| {
            let is_setting = error.kind() == io::ErrorKind::InvalidInput;
            let kind = if is_setting { ErrorKind::InvalidSettings } else { ErrorKind::Io };
            Error::new(kind, format!("the cache at {}: {error}", path.display()))
        };
        let near = self.near_tier.clone().map_or_else(default_near_tier, Ok).map_err(failed)?;
        let near_bytes = self.near_bytes.map_or_else(default_near_bytes, |bytes| Ok(Some(bytes)));
        let cache = RemoteCache::new(url, &near, self.client.clone()).map_err(failed)?;
        let mut cache = cache.near_bytes(near_bytes.map_err(failed)?);
        if let Some(bytes) = self.spool_bytes {
            cache = cache.spool_bytes(bytes);
        }
        Ok(ObjectStore { path, cache })
    }
}

/// Settings of a cache in an object store, with the feature `remote`. They have no effect on a cache in a directory, so a program may
/// have both under one setting.
///
/// ```no_run
/// use tcx::ClientOptions;
///
/// let client = ClientOptions::default().set("aws_region", "eu-central-1");
/// let cache = tcx::Cache::builder()
///     .near_tier("/var/cache/tcx") // on a disk of this machine
///     .client_options(client) // credentials come from the environment
///     .near_bytes(500 << 30)
///     .spool_bytes(16 << 30)
///     .open("s3://features/imagenet")?;
/// # Ok::<(), tcx::Error>(())
/// ```
impl CacheBuilder {
    /// The directory of the near tier of a cache in an object store: copies of the files of the store, and rows that wait to be sent. All
    /// processes of a machine should use the same one; it may serve several caches, and must not be on a network file system.
    ///
    /// Without it, it is that of the environment variable `TCX_NEAR_TIER`, else `tcx/near` in the user's directory for caches:
    /// `$XDG_CACHE_HOME` or `~/.cache`, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows.
    pub fn near_tier(mut self, dir: impl Into<PathBuf>) -> Self {
        self.remote.near_tier = Some(dir.into());
        self
    }

    /// How the object store is reached: settings that are not in the environment, and the longest time of a request. No message contains
    /// the values.
    pub fn client_options(mut self, options: ClientOptions) -> Self {
        self.remote.client = options;
        self
    }

    /// The most bytes that all copies in the near tier of a cache in an object store may have. Existing copies stay, and rows of other
    /// files are read in the store. All processes that use the near tier should have the same setting.
    ///
    /// Without it, it is that of the environment variable `TCX_NEAR_BYTES`, such as `500G`, else as much as the disk has room for.
    pub fn near_bytes(mut self, bytes: u64) -> Self {
        self.remote.near_bytes = Some(bytes);
        self
    }

    /// The most bytes of a module that may wait in the near tier while the object store cannot be reached (64 GiB). Rows that are computed
    /// beyond that are not kept, and [`flush`](crate::Cache::flush) says so.
    pub fn spool_bytes(mut self, bytes: u64) -> Self {
        self.remote.spool_bytes = Some(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, ClientOptions, ErrorKind};

    fn refusal(url: &str) -> String {
        let near = tempfile::tempdir().unwrap();
        let error = Cache::builder().near_tier(near.path()).open(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{error}");
        error.to_string()
    }

    #[test]
    fn a_url_that_is_not_known_is_refused_and_no_directory_is_made_of_it() {
        for (url, what) in [
            ("ftp://host/b", "expected s3://"),
            ("s3:/b/p", "followed by one slash"),
            ("http://host", "BUCKET"),
            ("s3://key:hunter2@b/p", "credentials belong into the environment"),
            ("https://host/b/p?token=hunter2", "a token belongs into the environment"),
        ] {
            let refusal = refusal(url);
            assert!(refusal.contains(what) && !refusal.contains("hunter2"), "{refusal}");
        }
        assert!(!std::path::Path::new("s3:").exists());
    }

    #[test]
    fn a_file_url_is_a_directory_with_the_rules_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let url = format!("file://{}", dir.display());
        let cache = Cache::open(&url).unwrap();
        assert_eq!(cache.path(), dir);
        cache.table::<Vec<i64>>("url_v1").unwrap().put(&["a"], &vec![1]).unwrap();
        cache.close().unwrap();
        assert!(refusal(&format!("{url}/url_v1")).contains("it is the folder of module `url_v1`"));
    }

    #[test]
    fn a_setting_that_is_not_known_is_refused_without_its_value_and_none_is_shown() {
        let near = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let client = ClientOptions::default().set("aws_access_key_id", "ada").set(name, "hunter2");
            Cache::builder().near_tier(near.path()).client_options(client).open("s3://b/p")
        };
        let refused = open("aws_secret").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidSettings);
        assert!(refused.to_string().contains("no setting `aws_secret`"), "{refused}");
        let cache = open("aws_secret_access_key").unwrap();
        assert_eq!(cache.path(), std::path::Path::new("s3://b/p"));
        for shown in [format!("{refused:#}"), format!("{cache:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_near_tier_that_cannot_be_made_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = Cache::builder().near_tier(file.join("near")).open("s3://b/p").unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("the cache at s3://b/p: cannot create the near tier"), "{refused}");
    }
}
