//! How far the jobs of processes that fill modules together are.

use std::path::{Path, PathBuf};

use tcx_store::unstable::{JobProgress, directory, jobs};

use crate::cache;
use crate::cache::store::StoreCache;
use crate::failure::{Failure, Result};

/// The modules whose jobs are looked at, in a directory or in an object store.
pub(crate) struct Jobs {
    place: Place,
    modules: Vec<String>,
}

enum Place {
    Directory(PathBuf),
    Store(Box<StoreCache>),
}

impl Jobs {
    /// Those of a module, or of all.
    pub(crate) fn of(place: &Path, module: Option<&str>) -> Result<Self> {
        if let Some(store) = StoreCache::at(place)? {
            let modules = store.chosen(module)?;
            return Ok(Self { place: Place::Store(Box::new(store)), modules });
        }
        let modules = cache::chosen(place, module)?;
        Ok(Self { place: Place::Directory(place.to_owned()), modules })
    }

    /// The newest round of each job, with the name of its module. Receives no rows.
    pub(crate) fn read(&self, with_times: bool) -> Result<Vec<(String, JobProgress)>> {
        let mut found = Vec::new();
        for module in &self.modules {
            let jobs = match &self.place {
                Place::Directory(dir) => {
                    let folder = dir.join(module);
                    let failed = |error| Failure::file("list", &folder, &error);
                    jobs(directory(folder.clone()), with_times).map_err(failed)?
                }
                Place::Store(store) => store.jobs(module, with_times)?,
            };
            found.extend(jobs.into_iter().map(|job| (module.clone(), job)));
        }
        Ok(found)
    }
}
