//! The uses of segments in the records: eviction counts those of all processes.

use super::record::SegmentUses;
use crate::changes::now_millis;
use crate::engine::Core;
use crate::live::uses::UseCount;
use crate::sys::clock::millis;

/// What this process records, the most used segments first.
pub(super) fn recorded(core: &Core) -> Vec<SegmentUses> {
    let now = now_millis();
    let of = |(segment, count): (_, UseCount)| SegmentUses {
        segment,
        rows: count.rows(now) as u64,
        seconds_ago: now.saturating_sub(count.last) / 1000,
    };
    let mut uses: Vec<SegmentUses> = core.uses(now).own().map(of).filter(|uses| uses.rows > 0).collect();
    uses.sort_by_key(|uses| (std::cmp::Reverse(uses.rows), uses.segment));
    uses
}

/// Reads what other processes have recorded, if it may be out of date. Records that cannot be read are left out.
pub(crate) fn learn_uses(core: &Core, now: u64) {
    if !core.uses(now).is_outdated(now) {
        return;
    }
    let mut sessions = super::recorded(&*core.storage);
    // The own record says what is known already.
    let own = (std::process::id(), millis(core.opened));
    sessions.retain(|session| (session.process, millis(session.started)) != own);
    let recorded = sessions.iter().flat_map(|session| {
        let ended = millis(session.ended);
        session.uses.iter().map(move |uses| {
            let last = ended.saturating_sub(uses.seconds_ago.saturating_mul(1000));
            (uses.segment, UseCount::new(uses.rows, ended, last))
        })
    });
    core.uses(now).learn(recorded, now);
}
