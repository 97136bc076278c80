//! Prefixes of object stores, as places of tables.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use tcx_remote::{ClientOptions, Location, RemoteCache, default_near_bytes, default_near_tier};

use crate::interop::error::{OrRaise, of_kind};
use crate::schema::spec::Spec;

/// A prefix of an object store, with the near tier of this machine. No method and no message shows the values of its options, which may be
/// credentials.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct ObjectStore(RemoteCache);

impl ObjectStore {
    pub(crate) fn get(&self) -> &RemoteCache {
        &self.0
    }
}

#[pymethods]
impl ObjectStore {
    /// `bytes` are the most bytes of copies in the near tier, and of a module's rows that wait to be sent.
    #[new]
    #[pyo3(signature = (url, near_tier, options, deadline=None, parallel=None, bytes=(None, None)))]
    fn new(
        py: Python<'_>,
        url: &str,
        near_tier: Option<PathBuf>,
        options: Vec<(String, String)>,
        deadline: Option<f64>,
        parallel: Option<usize>,
        bytes: (Option<u64>, Option<u64>),
    ) -> PyResult<Self> {
        let url = match location(url)? {
            Location::Store(url) => url,
            Location::Directory(dir) => {
                return Err(of_kind("InvalidPath", &format!("{} is a directory", dir.display())));
            }
        };
        let mut client = ClientOptions::default();
        if let Some(seconds) = deadline {
            let deadline = Duration::try_from_secs_f64(seconds).map_err(|error| {
                of_kind(
                    "InvalidSettings",
                    &format!("`deadline`: {seconds} is no duration in seconds: {error}"),
                )
            })?;
            client = client.deadline(deadline);
        }
        if let Some(requests) = parallel {
            client = client.parallel(requests);
        }
        client = options.into_iter().fold(client, |client, (name, value)| client.set(name, value));
        let failed = |error: io::Error| {
            let is_setting = error.kind() == io::ErrorKind::InvalidInput;
            let kind = if is_setting { "InvalidSettings" } else { "Io" };
            of_kind(kind, &format!("the cache at {url}: {error}"))
        };
        let near = near_tier.map_or_else(default_near_tier, Ok).map_err(failed)?;
        let mut cache = py.detach(|| RemoteCache::new(url.clone(), &near, client)).map_err(failed)?;
        let (near_bytes, spool_bytes) = bytes;
        let near_bytes = near_bytes.map_or_else(default_near_bytes, |bytes| Ok(Some(bytes)));
        cache = cache.near_bytes(near_bytes.map_err(failed)?);
        if let Some(bytes) = spool_bytes {
            cache = cache.spool_bytes(bytes);
        }
        Ok(Self(cache))
    }

    /// Where it is.
    #[getter]
    fn url(&self) -> String {
        self.0.url().to_string()
    }

    /// The directory of the near tier.
    #[getter]
    fn near_tier(&self) -> PathBuf {
        self.0.near_tier().to_owned()
    }

    /// The names of the folders of modules.
    fn modules(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| self.0.modules()).map_err(|error| of_kind("Io", &error.to_string()))
    }

    /// What a module is; `None` if there is no such module.
    fn spec(&self, py: Python<'_>, module: &str) -> PyResult<Option<Spec>> {
        Ok(py.detach(|| self.0.spec(module)).or_raise()?.map(Spec::of))
    }
}

/// The directory that a path or URL names; `None` if it is the URL of an object store.
#[pyfunction]
pub(crate) fn directory_of(path: PathBuf) -> PyResult<Option<OsString>> {
    match Location::of_path(&path).map_err(refused)? {
        // As text: a path of Python has no `./` at its beginning.
        Location::Directory(dir) => Ok(Some(dir.into_os_string())),
        Location::Store(_) => Ok(None),
    }
}

fn location(url: &str) -> PyResult<Location> {
    Location::parse(url).map_err(refused)
}

fn refused(error: io::Error) -> PyErr {
    let advice = "pass the URL of a prefix as a string, such as s3://bucket/prefix, or a directory";
    of_kind("InvalidPath", &format!("{error}; {advice}"))
}
