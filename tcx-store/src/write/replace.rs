//! Replacing rows: the tombstone that kills the old rows makes the new ones count, so that at every moment, whatever dies or fails, there
//! are either the old ones or the new ones.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::buffer::generation::Generation;
use crate::changes::DraftedChange;
use crate::engine::Core;
use crate::engine::publish::{forget_index, index_segment};
use crate::error::{Error, Result};
use crate::live::folder::Live;
use crate::segment::WrittenSegment;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::write::decide::Decided;
use crate::write::generation::{WrittenRows, count_sealed, failed, make_durable};
use crate::write::plan::{Plan, Replacing};

/// A segment that is durable but for its name, and has an index run.
struct Indexed {
    segment: WrittenSegment,
    rows: usize,
    run: Random,
}

/// A segment that has its name, or is about to get it.
struct Named {
    name: SegmentName,
    bytes: u64,
    rows: usize,
    run: Random,
}

impl Named {
    fn of(own: &Indexed) -> Self {
        let Indexed { segment, rows, run } = own;
        Self { name: segment.name, bytes: segment.bytes, rows: *rows, run: *run }
    }
}

/// Names the segments of the rows of each recompute session, and commits them. `false` if what was planned does not hold any more; the
/// sessions that came before stay committed.
///
/// # Errors
///
/// Returns an error if rows may not be durable.
pub(super) fn replace(
    core: &Core,
    generation: &Arc<Generation>,
    plan: &Plan,
    written: Vec<Vec<WrittenRows>>,
) -> Result<bool> {
    let index = |WrittenRows { segment, hashes }| {
        let rows = hashes.hashes.len();
        Indexed { run: index_segment(core, &segment, hashes), rows, segment }
    };
    let indexed = written.into_iter().map(|segments| segments.into_iter().map(index).collect::<Vec<_>>());
    let mut left: VecDeque<_> = plan.replacing.iter().zip(indexed).collect();
    let mut live = core.live();
    let replaced = replace_each(core, &mut live, generation, plan, &mut left);
    for indexed in left.into_iter().flat_map(|(_, segments)| segments) {
        forget_index(core, indexed.run);
    }
    replaced
}

fn replace_each(
    core: &Core,
    live: &mut Live,
    generation: &Arc<Generation>,
    plan: &Plan,
    left: &mut VecDeque<(&Replacing, Vec<Indexed>)>,
) -> Result<bool> {
    let mut decided = Decided::new(core, live, generation)?;
    let mut replaced = Ok(plan.is(&Plan::new(&decided, &live.changes)));
    while matches!(replaced, Ok(true))
        && let Some((replacing, segments)) = left.pop_front()
    {
        replaced = commit(core, live, &mut decided, replacing, segments);
    }
    decided.settle(core, live);
    if !replaced? {
        return Ok(false);
    }
    make_durable(core, live)?;
    // Others find the segments only if the folder was the same all the time.
    live.check_instance().inspect_err(|error| core.remember(error))?;
    Ok(true)
}

/// Names segments and creates their tombstone. `false` if another process has taken its number.
fn commit(
    core: &Core,
    live: &mut Live,
    decided: &mut Decided<'_>,
    replacing: &Replacing,
    segments: Vec<Indexed>,
) -> Result<bool> {
    let named: Vec<_> = segments.iter().map(Named::of).collect();
    let ready = draft(core, live, replacing).and_then(|drafted| match drafted {
        Some(drafted) => {
            let committed = named.iter().map(|own| own.name).collect();
            Ok(name_all(core, live, segments)?.then(|| drafted.committing(committed)))
        }
        None => Ok(None),
    });
    let committed = match ready {
        Ok(Some(drafted)) => decided.commit(core, &mut live.changes, replacing, drafted),
        other => {
            take_back(core, live, &named);
            return other.map(|_| false);
        }
    };
    match committed {
        Ok(true) => {
            for Named { name, bytes, rows, run } in named {
                live.add_run(run);
                count_sealed(core, (name, bytes, rows));
            }
        }
        Ok(false) => take_back(core, live, &named),
        // They count if the tombstone is there all the same.
        Err(_) => {}
    }
    committed
}

/// Writes the tombstone, which gets its name last; nothing if its number was given to another. Done before the first segment gets its name:
/// if the disk is full, none does. And all of them get their names in the folder that they were written in, or fail to.
fn draft(core: &Core, live: &mut Live, replacing: &Replacing) -> Result<Option<DraftedChange>> {
    live.check_instance().inspect_err(|error| core.remember(error))?;
    let drafted = live.changes.draft(&*core.storage, &replacing.attempt, &replacing.doomed);
    let drafted = drafted.map_err(|e| Error::io("cannot write a change in", core.storage.path(), e))?;
    Ok(Some(drafted).filter(|drafted| drafted.number() == replacing.needs().base))
}

/// Gives segments their names, durably. They count when their tombstone exists. `false` if another process has removed one already, which
/// nothing had committed: no tombstone may count on it.
fn name_all(core: &Core, live: &mut Live, segments: Vec<Indexed>) -> Result<bool> {
    for Indexed { segment, .. } in segments {
        let name = segment.name;
        segment.publish().map_err(|e| failed(core, e))?;
        match live.add_segment(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            added => added.map_err(|e| failed(core, e))?,
        }
    }
    Ok(true)
}

/// Removes segments that nothing will commit.
fn take_back(core: &Core, live: &mut Live, named: &[Named]) {
    for own in named {
        live.take_back(own.name);
        forget_index(core, own.run);
    }
}
