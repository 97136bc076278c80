//! Copies of modules in a store that programs read which read directories.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tcx_store::module_of_folder;

use super::files::{Kind, kind};
use super::pull::{Held, pull_in};
use super::stage::{Busy, Stage};
use super::{Copied, changes, local};
use crate::bucket::Bucket;
use crate::error::invalid;
use crate::near::{MIRRORS, store_folder};
use crate::options::ClientOptions;
use crate::url::StoreUrl;

/// A directory of the near tier that is as the modules of a store are, for programs that read directories. It has the modules that were
/// [updated](Self::update), as they were then. Processes of a machine share it: a method that changes a module waits for a process that
/// copies it.
///
/// ```no_run
/// use std::path::Path;
/// use tcx_remote::{ClientOptions, Location, Mirror};
///
/// let Location::Store(url) = Location::parse("s3://features/imagenet")? else { panic!() };
/// let mirror = Mirror::new(url, Path::new("/var/cache/tcx"), ClientOptions::default())?;
/// mirror.update("clip_v1", &mut |_, _| {})?;
/// println!("{}", mirror.directory().join("clip_v1").display());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Mirror {
    bucket: Bucket,
    dir: PathBuf,
    on_wait: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Mirror {
    /// The mirror of this store in a near tier. Each store has its own. Nothing is made, and no request.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is unknown or missing, or names another store than the URL.
    pub fn new(url: StoreUrl, near: &Path, client: ClientOptions) -> io::Result<Self> {
        let dir = near.join(MIRRORS).join(store_folder(&url, &client)?);
        Ok(Self { bucket: Bucket::new(url, client)?, dir, on_wait: Arc::new(|_| {}) })
    }

    /// From now on, the function gets a message for the user if another process is waited for longer than a moment.
    #[must_use]
    pub fn on_wait(mut self, note: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_wait = Arc::new(note);
        self
    }

    /// The store.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// The directory, in which each module has its folder.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Removes the modules that are not among these.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be removed.
    pub fn retain(&self, modules: &[String]) -> io::Result<()> {
        let others = tcx_store::modules(&self.dir).unwrap_or_default();
        others.iter().filter(|own| !modules.contains(own)).try_for_each(|module| self.remove(module))
    }

    /// Removes a module, if it is here, so that all of it is received again.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be removed.
    pub fn remove(&self, module: &str) -> io::Result<()> {
        let folder = self.folder(module)?;
        local::refuse_link(&folder)?;
        if !folder.exists() && !Stage::exists(&self.dir, module) {
            return Ok(());
        }
        let stage = self.stage(module)?;
        stage.take_away(&folder)?;
        stage.remove();
        Ok(())
    }

    /// What no other process changes, as long as this is kept, is the module as well as its stage.
    fn stage(&self, module: &str) -> io::Result<Stage> {
        Stage::of(&self.dir, module, &Busy::Wait(&*self.on_wait))
    }

    fn folder(&self, module: &str) -> io::Result<PathBuf> {
        // Another name could lead out of the mirror.
        match module_of_folder(module) {
            Some(_) => Ok(self.dir.join(module)),
            None => Err(invalid(format!("`{module}` is not the name of a module"))),
        }
    }

    /// Makes a module as it is in the store: [pulls](crate::pull) what is missing, and removes the segments that have left the store.
    ///
    /// `progress` gets the bytes that were received and those to receive.
    ///
    /// # Errors
    ///
    /// As [`pull`](crate::pull), but for those of a directory that has another cache, or a part of one: it is filled again. Another process
    /// is waited for.
    pub fn update(&self, module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)) -> io::Result<Copied> {
        let folder = self.folder(module)?;
        let stage = self.stage(module)?;
        let copied = self.update_in(&stage, &folder, module, progress)?;
        stage.remove();
        Ok(copied)
    }

    fn update_in(
        &self,
        stage: &Stage,
        folder: &Path,
        module: &str,
        progress: &mut (dyn FnMut(u64, u64) + Send),
    ) -> io::Result<Copied> {
        // What has left the store before it is pulled was replaced by what is pulled.
        let listed = self.bucket.list(module, None)?;
        let listed: BTreeSet<_> = listed.into_iter().map(|object| object.name).collect();
        let is_newer = |name: &String| matches!(kind(name), Some(Kind::Change(_))) && !listed.contains(name);
        let own = local::list(folder)?;
        let is_part = changes::count(module, local::changes(own.keys())).is_err();
        if is_part || own.keys().any(is_newer) {
            // A program was interrupted, or an older copy has taken the place of the module.
            stage.take_away(folder)?;
        }
        let copied = match pull_in(stage, &self.bucket, &self.dir, module, Held::InStore, progress) {
            // The prefix was filled again.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                stage.take_away(folder)?;
                pull_in(stage, &self.bucket, &self.dir, module, Held::InStore, progress)?
            }
            copied => copied?,
        };
        if copied.left_out.iter().all(|(name, _)| copied.foreign.contains(name)) {
            remove_left(&self.bucket, folder, module, &listed)?;
        }
        Ok(copied)
    }
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("bucket", &self.bucket).field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Removes the segments that are neither in this listing nor in the store now.
fn remove_left(bucket: &Bucket, dir: &Path, module: &str, listed: &BTreeSet<String>) -> io::Result<()> {
    let is_segment = |name: &String| kind(name) == Some(Kind::Segment);
    let mut left: Vec<_> = local::list(dir)?.into_keys().filter(is_segment).collect();
    left.retain(|name| !listed.contains(name));
    if left.is_empty() {
        return Ok(());
    }
    // It may be new.
    let now: BTreeSet<_> = bucket.list(module, None)?.into_iter().map(|object| object.name).collect();
    for name in left.iter().filter(|name| !now.contains(*name)) {
        let path = dir.join(name);
        fs::remove_file(&path).map_err(|error| local::failed("remove", &path, &error))?;
    }
    Ok(())
}
