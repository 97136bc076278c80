//! Copies of modules in a store that programs read which read directories.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tcx_store::module_of_folder;

use super::files::{Kind, kind};
use super::pull::STAGE;
use super::{Copied, local, pull};
use crate::bucket::Bucket;
use crate::error::invalid;
use crate::near::store_folder;
use crate::options::ClientOptions;
use crate::url::StoreUrl;

/// The folder of the near tier with the mirrors. No store has a folder of this name: the names of URLs are longer.
const MIRRORS: &str = "mirrors";

/// A directory of the near tier that is as the modules of a store are, for programs that read directories. It has the modules that were
/// [updated](Self::update), as they were then.
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
#[derive(Clone, Debug)]
pub struct Mirror {
    bucket: Bucket,
    dir: PathBuf,
}

impl Mirror {
    /// The mirror of this store in a near tier. Each store has its own. Nothing is made, and no request.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is unknown or missing, or names another store than the URL.
    pub fn new(url: StoreUrl, near: &Path, client: ClientOptions) -> io::Result<Self> {
        let dir = near.join(MIRRORS).join(store_folder(&url, &client)?);
        Ok(Self { bucket: Bucket::new(url, client)?, dir })
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
        remove_folder(&self.dir.join(STAGE).join(module))?;
        remove_folder(&folder)
    }

    fn folder(&self, module: &str) -> io::Result<PathBuf> {
        // Another name could lead out of the mirror.
        match module_of_folder(module) {
            Some(_) => Ok(self.dir.join(module)),
            None => Err(invalid(format!("`{module}` is not the name of a module"))),
        }
    }

    /// Makes a module as it is in the store: [pulls](pull()) what is missing, and removes the segments that have left the store.
    ///
    /// `progress` gets the bytes that were received and those to receive.
    ///
    /// # Errors
    ///
    /// As [`pull()`], but for those of a directory that has another cache: it is filled again.
    pub fn update(&self, module: &str, progress: &mut (dyn FnMut(u64, u64) + Send)) -> io::Result<Copied> {
        let folder = self.folder(module)?;
        // What has left the store before it is pulled was replaced by what is pulled.
        let listed = self.bucket.list(module, None)?;
        let listed: BTreeSet<_> = listed.into_iter().map(|object| object.name).collect();
        let is_newer = |name: &String| matches!(kind(name), Some(Kind::Change(_))) && !listed.contains(name);
        if local::list(&folder)?.keys().any(is_newer) {
            // An older copy has taken the place of the module.
            remove_folder(&folder)?;
        }
        let copied = match pull(&self.bucket, &self.dir, module, progress) {
            // The prefix was filled again.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                remove_folder(&folder)?;
                pull(&self.bucket, &self.dir, module, progress)?
            }
            copied => copied?,
        };
        if copied.left_out.is_empty() {
            remove_left(&self.bucket, &folder, module, &listed)?;
        }
        Ok(copied)
    }
}

/// Removes a folder, if there is one.
fn remove_folder(folder: &Path) -> io::Result<()> {
    local::refuse_link(folder)?;
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(local::failed("remove", folder, &error)),
        _ => Ok(()),
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
