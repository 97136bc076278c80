//! What the writer does when nobody waits: index runs and changes are merged.

use crate::bytes::Random;
use crate::core::Core;
use crate::index::write_merged;
use crate::live::Listing;
use crate::name::FileName;
use crate::probe::Trouble;

/// Merges index runs until none is due; into one, if there is not too much in them, when the writer `ends`. A merge that fails costs speed and nothing else.
pub(crate) fn merge_runs(core: &Core, ends: bool) {
    loop {
        let Some(runs) = core.live().mergeable(ends) else { return };
        // Without the lock: readers go on with the runs they have, which stay mapped.
        let damaged: Vec<_> = runs.iter().filter(|run| !run.is_intact()).cloned().collect();
        if !damaged.is_empty() {
            core.drop_damaged(&Trouble { runs: damaged, segments: Vec::new() });
            continue;
        }
        let merged = Random::new();
        let published = core.storage.draft().and_then(|mut draft| {
            write_merged(&mut draft, &runs)?;
            draft.publish(&FileName::Run(merged).to_string(), false)
        });
        if let Err(error) = published {
            tracing::warn!(path = %core.storage.path().display(), "cannot merge index runs: {error}");
            return;
        }
        let mut live = core.live();
        let replaced = live.replace_runs(merged);
        core.install(&mut live);
        drop(live);
        if replaced.is_empty() {
            return;
        }
        for name in &replaced {
            // A run that stays is opened again by others, and found to add nothing.
            let _ = core.storage.remove(&FileName::Run(*name).to_string());
        }
        if replaced == [merged] {
            // It could not be opened, or another process was faster: the same merge would give the same.
            return;
        }
    }
}

/// Merges changes if it is worth it. What fails costs speed and nothing else: the changes themselves stay.
pub(crate) fn merge_changes(core: &Core) {
    let storage = &*core.storage;
    let Some((plan, instance)) = core.live().mergeable_changes() else { return };
    let merged = storage.sync().and_then(|()| plan.write(storage, instance));
    let number = match merged {
        Ok(number) => number,
        Err(error) => {
            tracing::warn!(path = %storage.path().display(), "cannot merge changes: {error}");
            return;
        }
    };
    let mut live = core.live();
    live.adopt_merged_changes(number);
    core.install(&mut live);
    drop(live);
    let Ok(listing) = Listing::read(storage) else { return };
    for older in listing.changes.merged.range(..number) {
        // One that stays is not read again.
        let _ = storage.remove(&FileName::Merged(*older).to_string());
    }
}
