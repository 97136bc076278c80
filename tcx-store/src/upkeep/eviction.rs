//! The order in which segments are evicted: that of their age, or the one that a policy chooses.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::changes::now_millis;
use crate::engine::Core;
use crate::options::{EvictionCandidate, EvictionPolicy, WhenFull};
use crate::segment::Segment;
use crate::sessions::uses::learn_uses;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;
use crate::sys::clock::time;

/// What is removed first.
#[derive(Clone, Copy)]
pub(crate) struct EvictionOrder {
    /// `None`: the oldest segment.
    policy: Option<&'static dyn EvictionPolicy>,
    /// The newest segments that have these bytes are left out of the policy's choice.
    spared_bytes: u64,
}

impl EvictionOrder {
    pub(crate) const OLDEST: Self = Self { policy: None, spared_bytes: 0 };

    /// That of a setting. The rows that were acknowledged last have `fresh` bytes; the folder may take `max`.
    pub(crate) fn of(when_full: WhenFull, fresh: u64, max: u64) -> Self {
        let policy: Option<&'static dyn EvictionPolicy> = match when_full {
            WhenFull::StopWriting | WhenFull::EvictOldest => None,
            WhenFull::EvictLeastUsed => Some(&LeastUsed),
            WhenFull::EvictRandom => Some(&AtRandom),
            WhenFull::EvictBy(eviction) => Some(eviction.policy()),
        };
        // Rows that have just come were not used yet, also those that other processes have just written.
        Self { policy, spared_bytes: fresh.max(max / SPARED) }
    }

    /// All of these segments, of which those with the names in `served` are served, in the order in which they go until `excess` bytes
    /// are free.
    pub(crate) fn of_segments(
        self,
        core: &Core,
        mut usable: Vec<Arc<Segment>>,
        served: &HashSet<SegmentName>,
        excess: u64,
    ) -> Vec<Arc<Segment>> {
        usable.sort_by_key(|segment| (segment.born(), segment.name()));
        let Some(policy) = self.policy else { return usable };
        let old = &usable[..usable.len() - self.spared(&usable)];
        // What is not served goes by its age: no use of it is known.
        let old: Vec<_> = old.iter().filter(|segment| served.contains(&segment.name())).cloned().collect();
        let mut order: Vec<Arc<Segment>> = Vec::with_capacity(usable.len());
        let mut seen = HashSet::new();
        let chosen = choose(core, policy, &candidates(core, &old), excess);
        let chosen = chosen.into_iter().filter_map(|number| old.get(number).cloned());
        for segment in chosen.chain(usable) {
            if seen.insert(segment.name()) {
                order.push(segment);
            }
        }
        order
    }

    /// How many of these segments, the oldest of which comes first, are left out of the choice.
    fn spared(self, usable: &[Arc<Segment>]) -> usize {
        let mut left = self.spared_bytes;
        let is_spared = |segment: &&Arc<Segment>| {
            let is_spared = left > 0;
            left = left.saturating_sub(segment.bytes() as u64);
            is_spared
        };
        usable.iter().rev().take_while(is_spared).count()
    }
}

/// This part of the limit is left to the newest rows, whatever the policy is.
const SPARED: u64 = 8;

/// What a policy gets to know of these segments.
fn candidates(core: &Core, segments: &[Arc<Segment>]) -> Vec<EvictionCandidate> {
    let now = now_millis();
    learn_uses(core, now);
    let uses = core.uses(now);
    let candidate = |segment: &Arc<Segment>| {
        let count = uses.of(segment.name(), now);
        EvictionCandidate {
            name: segment.name().to_string(),
            rows: segment.rows() as u64,
            bytes: segment.bytes() as u64,
            born: time(segment.born()),
            uses: count.rows(now) as u64,
            last_used: (count.last > 0).then(|| time(count.last)),
        }
    };
    segments.iter().map(candidate).collect()
}

/// Asks the policy. One that panics has chosen nothing.
fn choose(
    core: &Core,
    policy: &dyn EvictionPolicy,
    candidates: &[EvictionCandidate],
    excess: u64,
) -> Vec<usize> {
    let chosen = catch_unwind(AssertUnwindSafe(|| policy.choose(candidates, excess)));
    let chosen =
        chosen.map_err(|_| format!("the policy `{}` panicked; the oldest rows are evicted", policy.name()));
    core.failing.note("choose rows to evict", core.storage.path(), chosen).unwrap_or_default()
}

/// What was used least for its size goes first. Of segments that were used equally, the youngest goes: if an epoch that does not fit
/// comes again in the same order, the oldest is wanted next.
struct LeastUsed;

impl EvictionPolicy for LeastUsed {
    fn name(&self) -> &'static str {
        "least used"
    }

    fn choose(&self, candidates: &[EvictionCandidate], _: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).rev().collect();
        // The sort is stable. Uses for each byte are compared without dividing.
        order.sort_by(|&a, &b| {
            let (a, b) = (&candidates[a], &candidates[b]);
            let [a, b] = [(a, b), (b, a)].map(|(own, other)| u128::from(own.uses) * u128::from(other.bytes));
            a.cmp(&b)
        });
        order
    }
}

/// Every segment goes with the same probability, whatever became of it before.
struct AtRandom;

impl EvictionPolicy for AtRandom {
    fn name(&self) -> &'static str {
        "random"
    }

    fn choose(&self, candidates: &[EvictionCandidate], _: u64) -> Vec<usize> {
        let mut order: Vec<(Random, usize)> =
            (0..candidates.len()).map(|number| (Random::new(), number)).collect();
        order.sort_by_key(|(random, _)| *random);
        order.into_iter().map(|(_, number)| number).collect()
    }
}
