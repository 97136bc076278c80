//! The sessions that processes have recorded for a module.

use std::path::Path;

use tcx_store::Session;

use crate::cache::store::StoreCache;
use crate::failure::Result;

/// Those of a module in this place, the oldest first. Of one in an object store, those of this machine.
pub(crate) fn read(place: &Path, module: &str) -> Result<Vec<Session>> {
    match StoreCache::at(place)? {
        Some(store) => store.sessions(module),
        None => Ok(tcx_store::sessions(&place.join(module))?),
    }
}
