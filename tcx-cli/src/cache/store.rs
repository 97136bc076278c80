//! Caches in object stores: opened where they are, or mirrored to this machine for what reads directories.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_remote::{Bucket, ClientOptions, Location, Mirror, RemoteCache, default_near_tier};
use tcx_store::{Options, Spec, Store};

use crate::cache;
use crate::console::output::Output;
use crate::console::progress;
use crate::failure::{Code, Failure, Result};

/// A cache in an object store.
pub(crate) struct StoreCache {
    cache: RemoteCache,
    mirror: Mirror,
}

impl StoreCache {
    /// The cache at a URL; `None` for a directory.
    pub(crate) fn at(place: &Path) -> Result<Option<Self>> {
        let url = match Location::of_path(place).map_err(failure)? {
            Location::Store(url) => url,
            Location::Directory(_) => return Ok(None),
        };
        let (near, client) = (default_near_tier().map_err(failure)?, ClientOptions::default());
        let cache = RemoteCache::new(url.clone(), &near, client.clone()).map_err(failure)?;
        let mirror = Mirror::new(url, &near, client).map_err(failure)?.on_wait(Output::note);
        Ok(Some(Self { cache, mirror }))
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        self.mirror.bucket()
    }

    /// The modules to work on: the one named, or all.
    pub(crate) fn chosen(&self, module: Option<&str>) -> Result<Vec<String>> {
        let found = tcx_remote::modules(self.bucket()).map_err(failure)?;
        let url = self.cache.url();
        if found.is_empty() {
            return Err(Failure::new(Code::NotFound, format!("no modules in {url}")));
        }
        match module {
            None => Ok(found),
            Some(module) => cache::named(&found, module, url).map(|()| vec![module.to_owned()]),
        }
    }

    /// What a module is.
    pub(crate) fn spec(&self, module: &str) -> Result<Spec> {
        let gone = || Failure::new(Code::NotFound, format!("no module `{module}` in {}", self.cache.url()));
        self.cache.spec(module)?.ok_or_else(gone)
    }

    /// Opens an existing module.
    ///
    /// # Errors
    ///
    /// As [`cache::spec`].
    pub(crate) fn open(&self, module: &str, options: &Options) -> Result<Arc<Store>> {
        let spec = self.spec(module)?;
        cache::check_name(&spec, module)?;
        Ok(self.cache.open(spec, &cache::in_folder(module, options))?)
    }

    /// The names and sizes of the files of a module.
    pub(crate) fn files(&self, module: &str) -> Result<Vec<(String, u64)>> {
        let listed = self.bucket().list(module, None).map_err(failure)?;
        Ok(listed.into_iter().map(|object| (object.name, object.bytes)).collect())
    }
}

/// Replaces a URL by a directory of this machine with the same modules, or the one that is named. They are received, but for what an
/// earlier command has received.
pub(crate) fn bring(place: &mut PathBuf, module: Option<&str>) -> Result<()> {
    let Some(store) = StoreCache::at(place)? else { return Ok(()) };
    let chosen = store.chosen(module)?;
    if module.is_none() {
        store.mirror.retain(&chosen).map_err(failure)?;
    }
    for name in chosen {
        for (file, why) in receive(&store.mirror, &name)? {
            Output::note(&format!("{name}: {file} is left out, {why}; `tcx verify` reports all such files"));
        }
    }
    store.mirror.directory().clone_into(place);
    Ok(())
}

/// As [`bring`], but everything is received again. Returns the files that were left out because they are damaged: the module, the file and
/// the reason.
pub(crate) fn bring_anew(place: &mut PathBuf, module: Option<&str>) -> Result<Vec<(String, String, String)>> {
    let Some(store) = StoreCache::at(place)? else { return Ok(Vec::new()) };
    let chosen = store.chosen(module)?;
    if module.is_none() {
        store.mirror.retain(&chosen).map_err(failure)?;
    }
    let mut left_out = Vec::new();
    for name in chosen {
        store.mirror.remove(&name).map_err(failure)?;
        let damaged = receive(&store.mirror, &name)?;
        left_out.extend(damaged.into_iter().map(|(file, why)| (name.clone(), file, why)));
    }
    store.mirror.directory().clone_into(place);
    Ok(left_out)
}

/// The files of a module that were left out.
fn receive(mirror: &Mirror, module: &str) -> Result<Vec<(String, String)>> {
    let bar = progress::bytes(format!("receiving {module}"));
    let copied = mirror.update(module, &mut progress::follow(&bar));
    bar.finish_and_clear();
    Ok(copied.map_err(failure)?.left_out)
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` takes")]
pub(crate) fn failure(error: io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::InvalidData => Code::Damaged,
        ErrorKind::AlreadyExists | ErrorKind::Unsupported => Code::Unfit,
        ErrorKind::InvalidInput => Code::Usage,
        _ => Code::Io,
    };
    Failure::new(code, error.to_string())
}
