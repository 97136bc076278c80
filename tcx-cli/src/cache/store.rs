//! Caches in object stores: opened where they are, or mirrored to this machine for what reads directories.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_remote::{
    Bucket, ClientOptions, Copied, Location, Mirror, Object, RemoteCache, default_near_bytes,
    default_near_tier,
};
use tcx_store::unstable::JobProgress;
use tcx_store::{Options, Session, Spec, Store};

use crate::cache;
use crate::cache::received::{LeftOut, Received};
use crate::cache::stored_file::StoredFile;
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
        let cache = cache.near_bytes(default_near_bytes().map_err(failure)?);
        let mirror = Mirror::new(url, &near, client).map_err(failure)?.on_wait(Output::note);
        Ok(Some(Self { cache, mirror }))
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        self.mirror.bucket()
    }

    /// All modules; there may be none.
    pub(crate) fn modules(&self) -> Result<Vec<String>> {
        tcx_remote::modules(self.bucket()).map_err(failure)
    }

    /// The modules to work on: the one named, or all.
    pub(crate) fn chosen(&self, module: Option<&str>) -> Result<Vec<String>> {
        let found = self.modules()?;
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

    /// Opens a module that may be new, in the folder that the options choose.
    pub(crate) fn open_as(&self, spec: Spec, options: &Options) -> Result<Arc<Store>> {
        Ok(self.cache.open(spec, options)?)
    }

    /// How far the jobs of a module are.
    pub(crate) fn jobs(&self, module: &str, with_times: bool) -> Result<Vec<JobProgress>> {
        self.cache.jobs(module, with_times).map_err(failure)
    }

    /// What processes of this machine have recorded of a module.
    pub(crate) fn sessions(&self, module: &str) -> Result<Vec<Session>> {
        Ok(self.cache.sessions(module)?)
    }

    /// The files of a module.
    pub(crate) fn files(&self, module: &str) -> Result<Vec<StoredFile>> {
        let listed = self.bucket().list(module, None).map_err(failure)?;
        let file = |Object { name, bytes, modified, .. }| StoredFile { name, bytes, modified };
        Ok(listed.into_iter().map(file).collect())
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
        let copied = receive(&store.mirror, &name).map_err(failure)?;
        for (file, why) in copied.left_out.iter().filter(|(file, _)| !copied.foreign.contains(file)) {
            Output::note(&format!("{name}: {file} is left out, {why}; `tcx verify` reports all such files"));
        }
    }
    store.mirror.directory().clone_into(place);
    Ok(())
}

/// As [`bring`], but everything is received again. `None` for a directory.
///
/// # Errors
///
/// Returns an error if the store does not answer, or denies access.
pub(crate) fn bring_again(place: &mut PathBuf, module: Option<&str>) -> Result<Option<Received>> {
    let Some(store) = StoreCache::at(place)? else { return Ok(None) };
    let chosen = store.chosen(module)?;
    if module.is_none() {
        store.mirror.retain(&chosen).map_err(failure)?;
    }
    let mut received = Received::default();
    for module in chosen {
        store.mirror.remove(&module).map_err(failure)?;
        match receive(&store.mirror, &module) {
            Ok(copied) => {
                let is_foreign = |file: &String| copied.foreign.contains(file);
                received.left_out.extend(copied.left_out.into_iter().map(|(file, why)| LeftOut {
                    is_foreign: is_foreign(&file),
                    module: module.clone(),
                    file,
                    why,
                }));
                received.modules.push(module);
            }
            // Others would fail as well, each after its time.
            Err(error) if is_away(&error) => return Err(failure(error)),
            Err(error) => received.failed.push((module, failure(error))),
        }
    }
    store.mirror.directory().clone_into(place);
    Ok(Some(received))
}

fn is_away(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::TimedOut | ErrorKind::PermissionDenied)
}

fn receive(mirror: &Mirror, module: &str) -> io::Result<Copied> {
    let bar = progress::bytes(format!("receiving {module}"));
    let copied = mirror.update(module, &mut progress::follow(&bar));
    bar.finish_and_clear();
    copied
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
