//! Records what a process has done. A failure here affects nothing else.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::uses::recorded;
use super::{FOLDER, KEPT, RecordName, Session, record};
use crate::engine::Core;
use crate::storage::Storage;
use crate::storage::TEMPORARY_FILES_STAY;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;
use crate::sys::clock;
use crate::sys::runtime;

/// The number of records beyond those kept that may exist, so that not every session counts them all out.
const MORE: usize = 200;

/// Keeps the record of a store's session.
pub(crate) struct Recorder {
    core: Arc<Core>,
    name: RecordName,
    /// The rows that had been looked up when the last record was written.
    recorded: u64,
    /// Whether it said that the store was closed.
    was_closed: bool,
    has_failed: bool,
}

impl Recorder {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let name = RecordName { started: clock::millis(core.opened), random: Random::new() };
        Self { core, name, recorded: 0, was_closed: false, has_failed: false }
    }

    /// Writes what has been done up to now in the place of what was written before, if there is anything new. A folder that
    /// is not there is not made.
    pub(crate) fn record(&mut self, is_closed: bool) {
        let stats = self.core.stats();
        let looked_up = stats.hits.saturating_add(stats.misses);
        let is_told = looked_up == self.recorded && (self.was_closed || !is_closed);
        if looked_up == 0 || is_told || self.core.check().is_err() {
            return;
        }
        // What is not there any more is not made again.
        if self.core.storage.info(&FileName::Change(0).to_string()).is_err() {
            return;
        }
        let spec = &self.core.spec;
        let session = Session {
            module: spec.module_id.clone(),
            started: self.core.opened,
            ended: runtime::wall(),
            is_closed,
            process: std::process::id(),
            provenance: spec.provenance.clone(),
            stats,
            uses: recorded(&self.core),
        };
        let is_first = self.recorded == 0;
        let written = self.core.storage.folder(FOLDER).and_then(|folder| {
            let mut draft = folder.draft()?;
            draft.write_all(&record::encode(&session))?;
            draft.publish(&self.name.to_string(), false)?;
            Ok(folder)
        });
        match written {
            Ok(folder) => {
                (self.recorded, self.was_closed) = (looked_up, is_closed);
                if is_first {
                    remove_old(&*folder, KEPT, KEPT + MORE, TEMPORARY_FILES_STAY);
                }
            }
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                let path = self.core.storage.path().join(FOLDER);
                tracing::debug!(path = %path.display(), "the session is not recorded: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Removes the oldest records but `kept` where there are more than `most`, and what processes have left that were killed while they wrote
/// one. What stays is removed another time.
pub(super) fn remove_old(folder: &dyn Storage, kept: usize, most: usize, stay: Duration) {
    let listed = folder.list().unwrap_or_default();
    let mut names: Vec<RecordName> = listed.iter().filter_map(|name| RecordName::parse(name)).collect();
    if names.len() > most {
        names.sort();
        for name in &names[..names.len() - kept] {
            let _ = folder.remove(&name.to_string());
        }
    }
    for name in listed.iter().filter(|name| matches!(FileName::parse(name), Some(FileName::Temporary(_)))) {
        if folder.info(name).is_ok_and(|info| info.age >= stay) {
            let _ = folder.remove(name);
        }
    }
}
