//! Caches in object stores, in a build without them: there are none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_store::unstable::JobProgress;
use tcx_store::{Options, Session, Spec, Store, url_scheme};

use crate::cache::received::Received;
use crate::cache::stored_file::StoredFile;
use crate::failure::{Failure, Result};

/// No cache.
pub(crate) enum StoreCache {}

impl StoreCache {
    /// `None` for a directory.
    pub(crate) fn at(place: &Path) -> Result<Option<Self>> {
        if url_scheme(place).is_some() { Err(not_built()) } else { Ok(None) }
    }

    pub(crate) fn modules(&self) -> Result<Vec<String>> {
        match *self {}
    }

    pub(crate) fn open_as(&self, _: Spec, _: &Options) -> Result<Arc<Store>> {
        match *self {}
    }

    pub(crate) fn chosen(&self, _: Option<&str>) -> Result<Vec<String>> {
        match *self {}
    }

    pub(crate) fn spec(&self, _: &str) -> Result<Spec> {
        match *self {}
    }

    pub(crate) fn open(&self, _: &str, _: &Options) -> Result<Arc<Store>> {
        match *self {}
    }

    pub(crate) fn jobs(&self, _: &str, _: bool) -> Result<Vec<JobProgress>> {
        match *self {}
    }

    pub(crate) fn sessions(&self, _: &str) -> Result<Vec<Session>> {
        match *self {}
    }

    pub(crate) fn files(&self, _: &str) -> Result<Vec<StoredFile>> {
        match *self {}
    }
}

#[expect(clippy::ptr_arg, reason = "as in a build with object stores")]
pub(crate) fn bring(place: &mut PathBuf, _: Option<&str>) -> Result<()> {
    StoreCache::at(place).map(drop)
}

#[expect(clippy::ptr_arg, reason = "as in a build with object stores")]
pub(crate) fn bring_again(place: &mut PathBuf, _: Option<&str>) -> Result<Option<Received>> {
    StoreCache::at(place).map(|_| None)
}

pub(crate) fn not_built() -> Failure {
    Failure::usage(
        "this `tcx` was built without object stores; install it again with them: \
         from the registry with `cargo install --locked tcx-cli --features remote`, \
         from a git repository with `cargo install --locked --git URL tcx-cli --features remote`, \
         from a clone with `cargo install --locked --path tcx-cli --features remote`",
    )
}
