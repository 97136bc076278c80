//! Object stores in a build without them: every URL is refused.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use tcx_store::{Options, Spec, Store, url_scheme};

use crate::cache::place::Place;
use crate::{Error, ErrorKind, Result};

#[derive(Clone, Debug, Default)]
pub(super) struct RemoteSettings {}

/// There is no such place.
#[derive(Clone, Debug)]
pub(crate) struct ObjectStore(Infallible);

impl ObjectStore {
    fn at(url: &Path) -> Result<Self> {
        // The rest of it may contain credentials.
        let scheme = url_scheme(url).unwrap_or_default();
        let message =
            format!("cannot open a cache at a URL ({scheme}://…): tcx was built without object stores");
        let remedy = if scheme == "file" {
            "pass the path of the directory instead"
        } else {
            "build `tcx-cache` with the feature `remote`; or put `./` before the path of a directory of this name"
        };
        Err(Error::new(ErrorKind::InvalidPath, message).with_remedy(remedy))
    }

    pub(super) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(super) fn open(&self, _: Spec, _: &Options) -> tcx_store::Result<Arc<Store>> {
        match self.0 {}
    }
}

impl RemoteSettings {
    #[expect(clippy::unused_self, reason = "as with object stores")]
    pub(super) fn place(&self, url: &Path) -> Result<Place> {
        ObjectStore::at(url).map(|store| Place::Store(Box::new(store)))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, ErrorKind};

    #[test]
    fn a_url_is_refused_with_the_feature_to_build_with_and_no_directory_is_made_of_it() {
        for url in ["s3://key:hunter2@bucket/prefix", "s3:/bucket/prefix", "gs://b", "http://host:9000/b/p"] {
            let refused = Cache::open(url).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidPath);
            let refused = refused.to_string();
            assert!(refused.contains("the feature `remote`") && !refused.contains("hunter2"), "{refused}");
        }
        let refused = Cache::open("file:///data/cache").unwrap_err().to_string();
        assert!(refused.ends_with("pass the path of the directory instead"), "{refused}");
        assert!(!std::path::Path::new("s3:").exists());
    }
}
