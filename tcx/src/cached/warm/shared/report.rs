//! What calls that share work have done.

use std::fmt;

use indicatif::HumanCount;
use tcx_store::unstable::WorkerFacts;

use super::rank::Rank;

/// What [`Cached::warm_shared`](crate::Cached::warm_shared) has done, here and in other workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedReport {
    /// How many ids there are, repeated ones counted each time. Every one was found or computed by some worker, unless the call was
    /// [stopped](Self::stopped).
    pub asked: u64,
    /// The samples that this worker computed.
    pub computed: u64,
    /// What the workers of the job reported last, this one first. Those that joined after this one looked last are missing.
    pub workers: Vec<SharedWorker>,
    /// Whether it ended early, because it was [asked to](crate::Warming::stop).
    pub stopped: bool,
}

/// What one worker has done. A part of a [`SharedReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedWorker {
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub process: u32,
    /// The samples that it computed.
    pub computed: u64,
    /// The samples that it found.
    pub found: u64,
    /// The work ranges that it finished.
    pub ranges: u64,
    /// How many of them it took over from workers that were gone.
    pub taken_over: u64,
}

impl From<WorkerFacts> for SharedWorker {
    fn from(facts: WorkerFacts) -> Self {
        let WorkerFacts { host, process, counts, .. } = facts;
        let (computed, found) = (counts.computed, counts.found);
        Self { host, process, computed, found, ranges: counts.ranges, taken_over: counts.taken_over }
    }
}

/// `120 of 2,000 samples computed here`, and a line for each worker.
impl fmt::Display for SharedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} samples computed here", HumanCount(self.computed), HumanCount(self.asked))?;
        f.write_str(if self.stopped { ", stopped early" } else { "" })?;
        self.workers.iter().try_for_each(|worker| write!(f, "\n{worker}"))
    }
}

/// `node7, process 12: 120 computed, 8 found, 2 work ranges, 1 of them taken over`.
impl fmt::Display for SharedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, process, computed, found, ranges, taken_over } = self;
        let [computed, found, ranges] = [computed, found, ranges].map(|number| HumanCount(*number));
        write!(f, "{host}, process {process}: {computed} computed, {found} found, {ranges} work ranges")?;
        if *taken_over > 0 { write!(f, ", {taken_over} of them taken over") } else { Ok(()) }
    }
}

/// What [`Cached::warm_sharded`](crate::Cached::warm_sharded) has done in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardReport {
    /// The rank of this process.
    pub rank: Rank,
    /// The ids of this rank, repeated ones counted each time.
    pub asked: u64,
    /// The samples that were missing, and were computed. In a call after one whose ranks died, these are the samples that they left.
    pub computed: u64,
    /// The rows that this process computed during the call and could not keep, because writing was off or the folder was full.
    pub not_kept: u64,
    /// Whether it ended early, because it was [asked to](crate::Warming::stop).
    pub stopped: bool,
}

/// `rank 3 of 8: 20 of 1,000 samples computed, 8 not kept, stopped early`.
impl fmt::Display for ShardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, asked, computed, not_kept, stopped } = self;
        write!(f, "{rank}: {} of {} samples computed", HumanCount(*computed), HumanCount(*asked))?;
        if *not_kept > 0 {
            write!(f, ", {} not kept", HumanCount(*not_kept))?;
        }
        f.write_str(if *stopped { ", stopped early" } else { "" })
    }
}
