//! A cache in an object store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::{Folders, JobProgress, Storage, jobs};
use tcx_store::{Options, Pin, PinnedRows, Session, Spec, Store, module_of_folder};

use crate::bucket::Bucket;
use crate::copy::modules;
use crate::folder::RemoteFolder;
use crate::near::budget::Budget;
use crate::near::{Near, place, store_folder};
use crate::options::ClientOptions;
use crate::url::StoreUrl;

/// Files that compaction has replaced stay so long, unless the options say something else. Machines list a store seldom.
const GC_GRACE: Duration = Duration::from_hours(1);

/// The most bytes that may wait to be sent if nothing else is set.
const SPOOL_BYTES: u64 = 64 << 30;

/// A cache whose files are in an object store, with a *near tier*: a directory of this machine that keeps copies of what was received, and
/// rows that wait to be sent. All processes of a machine should use the same near tier, and one near tier may serve several caches.
///
/// A module that is [opened](Self::open) has the same methods as one in a directory. `docs/remote.md` describes what differs.
///
/// ```no_run
/// use std::path::Path;
/// use tcx_remote::{ClientOptions, Location, RemoteCache};
/// # use tcx_store::{ColumnType, DType, Identity, KeyType, Keys, Options, Spec};
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # let spec = Spec::new("m_v1", KeyType::Int, &output, Identity::default(), Vec::new())?;
///
/// let Location::Store(url) = Location::parse("s3://features/imagenet")? else { panic!() };
/// let cache = RemoteCache::new(url, Path::new("/var/cache/tcx"), ClientOptions::default())?;
/// let store = cache.open(spec, &Options::default())?;
/// let rows = store.lookup(Keys::ints([1, 2], 0))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RemoteCache {
    url: StoreUrl,
    near: PathBuf,
    /// The folder of the near tier for this store.
    folder: String,
    client: ClientOptions,
    near_bytes: Option<u64>,
    spool_bytes: u64,
}

impl RemoteCache {
    /// A cache under this URL. `near` is the directory of the near tier, which is made if it does not exist; [`default_near_tier`] has the
    /// one to use if a program's user does not say. No request is made yet.
    ///
    /// [`default_near_tier`]: crate::default_near_tier
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is unknown or missing, or if the directory cannot be made.
    pub fn new(url: StoreUrl, near: &Path, client: ClientOptions) -> io::Result<Self> {
        Bucket::new(url.clone(), client.clone())?;
        let folder = store_folder(&url, &client)?;
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot create the near tier {}: {error}", near.display()))
        };
        std::fs::create_dir_all(near).map_err(failed)?;
        let near = near.canonicalize().map_err(failed)?;
        place::warn_of_network(&near);
        Ok(Self { url, near, folder, client, near_bytes: None, spool_bytes: SPOOL_BYTES })
    }

    /// The most bytes that all copies of segments in the near tier may have, those of other modules and processes included; with
    /// `None`, if nothing else is set, the disk decides. Segments that are not kept are read in the store, the parts that are
    /// needed. All processes that use the near tier should have the same setting: a smaller one removes copies that others have received.
    #[must_use]
    pub fn near_bytes(mut self, bytes: Option<u64>) -> Self {
        self.near_bytes = bytes;
        self
    }

    /// The most bytes of a module that may wait in the near tier while the store cannot be reached, 64 GiB if nothing else is set. Rows
    /// that are computed beyond that are not kept, and [`Store::flush`] says so.
    #[must_use]
    pub fn spool_bytes(mut self, bytes: u64) -> Self {
        self.spool_bytes = bytes;
        self
    }

    /// Where the cache is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The near tier, as an absolute path.
    pub fn near_tier(&self) -> &Path {
        &self.near
    }

    /// Opens a module, as [`Store::open`] does in a directory. If the options have the default [`gc_grace`](Options::gc_grace), replaced
    /// files stay for an hour.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]. Also returns an error if the store cannot be reached.
    pub fn open(&self, spec: Spec, options: &Options) -> tcx_store::Result<Arc<Store>> {
        let mut options = options.clone();
        if options.gc_grace == Options::default().gc_grace {
            options.gc_grace = GC_GRACE;
        }
        let modules = Modules { resumes: !options.read_only, ..self.folders() };
        Store::open_in_folders(&modules, spec, &options)
    }
}

impl RemoteCache {
    /// The modules of the cache, in the order of their names.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached.
    pub fn modules(&self) -> io::Result<Vec<String>> {
        modules(&Bucket::new(self.url.clone(), self.client.clone())?)
    }

    /// How far the jobs of a module are. `with_times` asks for the time of each record, too. Receives no segment.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached.
    #[doc(hidden)]
    pub fn jobs(&self, module: &str, with_times: bool) -> io::Result<Vec<JobProgress>> {
        if module_of_folder(module).is_none() {
            return Ok(Vec::new());
        }
        jobs(self.folders().storage(module)?, with_times)
    }

    /// What processes of this machine have recorded of a module, as [`sessions`](tcx_store::sessions) of one in a directory. Makes no request.
    ///
    /// # Errors
    ///
    /// Returns an error if the near tier cannot be read.
    pub fn sessions(&self, module: &str) -> tcx_store::Result<Vec<Session>> {
        if module_of_folder(module).is_none() {
            return Ok(Vec::new());
        }
        tcx_store::sessions(self.folders().near(module).dir())
    }

    /// The live rows of a module at this moment, or those that another process has [pinned](PinnedRows::pin). What is wanted of them is read
    /// in the store, unless this machine has it: of large segments no copy is made.
    ///
    /// # Errors
    ///
    /// As [`PinnedRows::open`] and [`PinnedRows::open_pinned`]. Also returns an error if the store cannot be reached.
    pub fn pinned_rows(&self, module: &str, pin: Option<&Pin>) -> tcx_store::Result<PinnedRows> {
        PinnedRows::open_in_folders(&Modules { in_place: true, ..self.folders() }, module, pin)
    }

    /// What an existing module is, as [`Spec::read`] says of one in a directory; `None` if there is no such module.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, or if change 0 is damaged.
    pub fn spec(&self, module: &str) -> tcx_store::Result<Option<Spec>> {
        // Another name could lead out of the near tier.
        if module_of_folder(module).is_none() {
            return Ok(None);
        }
        Spec::read_in_folders(&self.folders(), module)
    }

    /// The folders of the modules, to be looked at.
    fn folders(&self) -> Modules<'_> {
        Modules { cache: self, resumes: false, in_place: false }
    }
}

/// The folders of the modules, for one call.
struct Modules<'a> {
    cache: &'a RemoteCache,
    /// Whether what waits to be sent is sent.
    resumes: bool,
    /// Whether only what is wanted of large segments is read.
    in_place: bool,
}

impl Modules<'_> {
    fn near(&self, module: &str) -> Near {
        Near::new(&self.cache.near, &self.cache.folder, module)
    }
}

impl Folders for Modules<'_> {
    fn key(&self, name: &str) -> PathBuf {
        self.near(name).dir().to_owned()
    }

    fn storage(&self, name: &str) -> io::Result<Arc<dyn Storage>> {
        let RemoteCache { url, near, client, near_bytes, spool_bytes, .. } = self.cache;
        let bucket = Bucket::new(url.clone(), client.clone())?;
        let budget = Budget::new(near, *near_bytes);
        if self.in_place {
            return Ok(Arc::new(RemoteFolder::in_place(bucket, name, self.near(name), budget)));
        }
        let folder = RemoteFolder::new(bucket, name, self.near(name), budget, *spool_bytes);
        if self.resumes {
            folder.resume();
        }
        Ok(Arc::new(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Location;

    fn cache(url: &str, settings: &[(&str, &str)]) -> io::Result<RemoteCache> {
        let Ok(Location::Store(url)) = Location::parse(url) else { panic!("{url} is a URL") };
        let keys = [("aws_access_key_id", "a"), ("aws_secret_access_key", "b"), ("aws_region", "c")];
        let settings = keys.iter().chain(settings);
        let client =
            settings.fold(ClientOptions::default(), |client, (name, value)| client.set(*name, *value));
        RemoteCache::new(url, &std::env::temp_dir(), client)
    }

    fn folder(url: &str, settings: &[(&str, &str)]) -> PathBuf {
        let cache = cache(url, settings).unwrap();
        cache.folders().key("m_v1")
    }

    #[test]
    fn stores_with_buckets_of_one_name_share_nothing() {
        let endpoints =
            [&[("aws_endpoint", "https://one.example")], &[("aws_endpoint", "https://two.example")]];
        let [one, two] = endpoints.map(|endpoint| folder("s3://b/p", endpoint));
        assert!(one != two && one != folder("s3://b/p", &[]), "{one:?}, {two:?}");
        assert_eq!(one, folder("s3://b/p", endpoints[0]));
        let of_google = |settings: &[(&str, &str)]| {
            let client = settings
                .iter()
                .fold(ClientOptions::default(), |client, (name, value)| client.set(*name, *value));
            let Ok(Location::Store(url)) = Location::parse("gs://b/p") else { panic!("it is a URL") };
            store_folder(&url, &client).unwrap()
        };
        let [one, two] =
            ["https://one.example", "https://two.example"].map(|url| of_google(&[("google_base_url", url)]));
        assert!(one != two && one != of_google(&[]), "{one}, {two}");
    }

    #[test]
    fn an_endpoint_that_contradicts_the_url_is_refused() {
        for setting in [("aws_endpoint", "https://two.example"), ("aws_bucket", "other")] {
            let error = cache("https://one.example/b/p", &[setting]).unwrap_err().to_string();
            assert!(error.contains("another endpoint or bucket"), "{error}");
        }
        cache("https://one.example/b/p", &[("aws_endpoint", "https://one.example")]).unwrap();
    }

    #[test]
    fn an_endpoint_with_credentials_is_refused_and_names_no_folder() {
        for endpoint in [
            "https://user:hunter2@one.example",
            "https://hunter2@one.example",
            "https://one.example/?token=hunter2",
            "https://one.example/#hunter2",
        ] {
            let refused = cache("s3://b/p", &[("aws_endpoint", endpoint)]).unwrap_err().to_string();
            assert!(!refused.contains("hunter2") && refused.contains("endpoint"), "{refused}");
        }
        let account = [
            ("azure_storage_account_name", "a"),
            ("azure_storage_endpoint", "https://one.example/?sig=hunter2"),
        ];
        let set = |client: ClientOptions, (name, value): &(&str, &str)| client.set(*name, *value);
        let client = account.iter().fold(ClientOptions::default(), set);
        let Ok(Location::Store(url)) = Location::parse("az://c/p") else { panic!("it is a URL") };
        let refused = RemoteCache::new(url, &std::env::temp_dir(), client).unwrap_err().to_string();
        assert!(!refused.contains("hunter2") && refused.contains("endpoint"), "{refused}");
    }

    #[test]
    fn settings_that_no_clock_and_no_machine_has_are_cut() {
        let client = ClientOptions::default().deadline(Duration::MAX).parallel(usize::MAX);
        let Ok(Location::Store(url)) = Location::parse("https://one.example/b/p") else { panic!() };
        RemoteCache::new(url, &std::env::temp_dir(), client).unwrap();
    }
}
