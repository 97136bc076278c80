//! Another program repairs the folder, as `tcx verify --repair` does.

use super::fresh;
use crate::Result;
use crate::inspect::Inspection;
use crate::inspect::verify::{Damage, Repair, verify_all};
use crate::testing::simulation::process::Process;

/// A repair that was interrupted, or was not announced because of other damage, is ended by the next one.
const REPAIRS_AT_MOST: usize = 5;

/// Repairs what is damaged. To the `end`: then nothing must be left.
pub(super) fn repair(process: &Process, end: bool) {
    let is_done = |_: usize| {
        let repaired = repair_once(process);
        process.world.note(|| format!("process {}: repaired {repaired:?}", process.number));
        repaired.is_ok_and(|damage| damage.is_empty())
    };
    let is_repaired = (0..if end { REPAIRS_AT_MOST } else { 1 }).any(is_done);
    // Without change 0 there is no module.
    if end && !is_repaired && process.world.folder.instance().is_some() {
        process.world.oracle().violated("stuck: damage is left after repairs".to_owned());
    }
}

/// Returns what was damaged.
fn repair_once(process: &Process) -> Result<Vec<Damage>> {
    let storage = process.storage();
    let look = || Inspection::in_storage(storage.clone());
    fresh(|| {
        let found = verify_all(&look()?, &mut |_, _| {})?.damage;
        Repair { storage: &*storage, look: &look }.run(&found, &mut |_, _| {})?;
        Ok(found)
    })
}
