//! Working on a list of ids together with other processes.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::Xxh3;

use crate::engine::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::leases::collect::remove_ended;
use crate::leases::contents::{Job, WorkerCounts, WorkerRecord, WorkerState};
use crate::leases::files::{FOLDER, StoredLeases};
use crate::leases::round::{Joined, Joining};
use crate::leases::worker::{Next, OtherIds, Setup, Worker};
use crate::schema::key::Keys;
use crate::store::Store;
use crate::sys::bytes::Random;
use crate::sys::runtime::{self, lock};

/// A worker whose last progress is this many expiry times ago no longer renews its leases: it may hang.
const PATIENCE: u32 = 10;

/// How a worker shares a job.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// After this time without a sign of life, a worker is taken for gone.
    pub expiry: Duration,
    /// Whether ranges can be read in any order.
    pub jumps: bool,
    /// The name of this machine, if the provenance of the module's spec is that of another process.
    pub host: Option<String>,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRange {
    /// It computes what is missing of this range.
    Compute {
        /// The number of the range.
        range: u64,
        /// Whether another worker had it, and may have computed some of it.
        is_taken_over: bool,
    },
    /// Other workers have what is left: it asks again after this time.
    Wait(Duration),
    /// Every range is finished.
    Finished,
}

/// What a worker of a job did, as it reported last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// The machine that it runs on.
    pub host: String,
    /// The number of its process there.
    pub process: u32,
    /// Whether it is this one.
    pub is_own: bool,
    /// Whether it has left.
    pub has_left: bool,
    /// What it did.
    pub counts: WorkerCounts,
}

/// A finished range, to be compared with this worker's own ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The number of the range.
    pub range: u64,
    /// The digest of the ids that the other worker has there.
    pub digest: u64,
    /// Who that is.
    pub worker: String,
}

/// This process as a worker of a job. Dropped, it leaves.
#[derive(Debug)]
pub struct JobWorker {
    core: Arc<Core>,
    name: String,
    worker: Mutex<Worker<StoredLeases>>,
    expiry: Duration,
    joined: Instant,
    progress: Mutex<Instant>,
    /// The workers whose ids were compared with this one's.
    compared: Mutex<Vec<Random>>,
}

impl Keys {
    /// A digest of the keys, in their order, and of their view.
    pub fn digest_all(&self) -> u64 {
        let mut digest = Xxh3::new();
        digest.update(&[self.key_type() as u8]);
        digest.update(&self.view().to_le_bytes());
        for position in 0..self.len() {
            let key = self.key(position);
            digest.update(&(key.len() as u64).to_le_bytes());
            digest.update(key);
        }
        digest.digest()
    }
}

impl Store {
    /// Joins the workers of a job; `None` if it `is_stopped` before.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is read-only, if the folder cannot be written, or if workers of a job of this name have other ids.
    pub fn join_job(
        &self,
        job: &Job,
        sharing: Sharing,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<JobWorker>> {
        self.writer()?;
        let core = &self.core;
        let change = core.make_folder()?;
        let files = StoredLeases::new(core.storage.clone());
        let failed = |error| Error::io("cannot share work in", core.storage.path().join(FOLDER), error);
        let (mut joining, mut failing) = (Joining::new(job.clone(), sharing.expiry), None);
        let round = loop {
            if is_stopped() {
                return Ok(None);
            }
            let now = runtime::now();
            let pause = match joining.join(&files, now) {
                Ok(Joined::Round(round)) => break round,
                Ok(Joined::Refused(other)) => return Err(core.refused(job, &other)),
                Ok(Joined::Wait(pause)) => pause,
                Err(error) if now - *failing.get_or_insert(now) >= sharing.expiry => {
                    return Err(failed(error));
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(failed(error)),
                Err(_) => Duration::from_millis(100),
            };
            thread::sleep(pause);
        };
        remove_ended(&files, round);
        let (id, Sharing { expiry, jumps, host }) = (Random::new(), sharing);
        let setup = Setup { id, expiry, range_size: job.range_size.max(1), ids: job.ids, jumps, change };
        let provenance = core.spec.provenance.iter();
        let named = provenance.filter(|(name, _)| name == "host").map(|(_, host)| host.clone()).next();
        let own = WorkerRecord {
            host: host.or(named).unwrap_or_default(),
            process: std::process::id(),
            ..WorkerRecord::default()
        };
        let worker = JobWorker {
            core: core.clone(),
            name: job.name.clone(),
            worker: Mutex::new(Worker::new(files, round, setup, own)),
            expiry,
            joined: runtime::now(),
            progress: Mutex::new(runtime::now()),
            compared: Mutex::default(),
        };
        worker.renew();
        Ok(Some(worker))
    }
}

impl Core {
    /// Makes the folder, in which leases are, and returns the number of its newest change.
    fn make_folder(&self) -> Result<u64> {
        let mut live = self.live();
        live.refresh()?;
        let made = live.ensure_identity();
        self.install(&mut live);
        made?;
        Ok(live.changes.newest().unwrap_or_default())
    }

    fn refused(&self, job: &Job, other: &Job) -> Error {
        let ids =
            |ids: Option<u64>| ids.map_or_else(|| "an unknown number".to_owned(), |ids| ids.to_string());
        let difference = if job.range_size != other.range_size {
            format!("work ranges of {} ids, here of {}", other.range_size, job.range_size)
        } else if job.ids != other.ids {
            format!("{} of ids, here {}", ids(other.ids), ids(job.ids))
        } else {
            "other ids, or the same ids in another order".to_owned()
        };
        self.other_ids(&job.name, &format!("workers that are running have {difference}"))
    }

    fn other_ids(&self, job: &str, difference: &str) -> Error {
        let (module, path) = (&self.spec.module_id, self.storage.path().display());
        Error::of_kind(
            ErrorKind::Invalid,
            format!(
                "cannot share the job `{job}` of `{module}` at {path}: {difference}; pass every worker the same ids in the same order \
                 (sort what a directory lists), or give this job another name"
            ),
        )
    }
}

impl JobWorker {
    fn failed(&self, error: io::Error) -> Error {
        Error::io("cannot share work in", self.core.storage.path().join(FOLDER), error)
    }

    /// What to do next.
    ///
    /// # Errors
    ///
    /// Returns an error if leases could be neither written nor listed for the expiry time, or if a worker has another number of ids.
    pub fn next(&self) -> Result<NextRange> {
        self.note_progress();
        // Before any row of the range is looked up: an invalidation that comes later is one that others do not rely on.
        let change = self.core.live().changes.newest().unwrap_or_default();
        let mut worker = lock(&self.worker);
        let next = worker.next(runtime::now(), change).map_err(|error| self.failed(error))?;
        if let Some(OtherIds { theirs, own, worker: other }) = worker.disagrees.clone() {
            let difference = format!("{} has {theirs} ids, here {own}", described(&worker, other));
            self.withdraw(&mut worker);
            return Err(self.core.other_ids(&self.name, &difference));
        }
        Ok(match next {
            Next::Range(leased) => {
                NextRange::Compute { range: leased.range, is_taken_over: leased.is_taken_over }
            }
            Next::Wait(pause) => NextRange::Wait(pause),
            Next::Covered => NextRange::Finished,
        })
    }

    fn withdraw(&self, worker: &mut Worker<StoredLeases>) {
        if let Err(error) = worker.withdraw() {
            tracing::debug!(job = self.name, "cannot take back what was reported: {error}");
        }
    }

    /// A worker that has finished ranges and was not compared yet.
    pub fn comparison(&self) -> Option<Comparison> {
        let (worker, mut compared) = (lock(&self.worker), lock(&self.compared));
        let new = |(id, other): (&Random, &WorkerRecord)| {
            let (range, digest) = other.digests.last_key_value()?;
            (!compared.contains(id)).then_some((*id, *range, *digest))
        };
        let (id, range, digest) = worker.others.iter().find_map(new)?;
        compared.push(id);
        Some(Comparison { range, digest, worker: described(&worker, id) })
    }

    /// The error for a range of which another worker has other ids. Takes back what this one has reported: it may be this one that is
    /// wrong.
    pub fn differs(&self, comparison: &Comparison) -> Error {
        let Comparison { range, worker, .. } = comparison;
        self.withdraw(&mut lock(&self.worker));
        self.core.other_ids(&self.name, &format!("{worker} has other ids in work range {range}"))
    }

    /// The number of ids is known now.
    pub fn learn_ids(&self, ids: u64) {
        lock(&self.worker).learn_ids(ids);
    }

    /// How many ids there are, if a worker knows.
    pub fn ids(&self) -> Option<u64> {
        lock(&self.worker).own.ids
    }

    /// This worker has computed something, or waits.
    pub fn note_progress(&self) {
        *lock(&self.progress) = runtime::now();
    }

    /// How often [`renew`](Self::renew) is to be called.
    pub fn renews_every(&self) -> Duration {
        self.expiry / 8
    }

    /// Shows that this worker is alive, unless it has made no progress for a long time. A failure costs others its ranges at most.
    pub fn renew(&self) {
        let now = runtime::now();
        if now.saturating_duration_since(*lock(&self.progress)) >= self.expiry.saturating_mul(PATIENCE) {
            return;
        }
        let mut worker = lock(&self.worker);
        self.describe(&mut worker, now);
        if let Err(error) = worker.renew(now) {
            tracing::debug!(job = self.name, "cannot renew leases: {error}");
        }
    }

    /// Whether another worker has taken over the range.
    pub fn is_lost(&self, range: u64) -> bool {
        lock(&self.worker).is_lost(range)
    }

    /// Counts samples of ranges that are not finished yet, or were given up.
    pub fn count(&self, computed: u64, found: u64) {
        let mut worker = lock(&self.worker);
        worker.own.facts.computed += computed;
        worker.own.facts.found += found;
    }

    /// What the record says of the time and the requests that the work has taken.
    fn describe(&self, worker: &mut Worker<StoredLeases>, now: Instant) {
        worker.own.worked = Some(now.saturating_duration_since(self.joined));
        let (traffic, counts) = (self.core.storage.traffic(), &mut worker.own.facts);
        (counts.puts_and_lists, counts.gets) = (traffic.puts_and_lists(), traffic.reads());
        (counts.bytes_sent, counts.bytes_received) = (traffic.bytes_sent, traffic.bytes_received);
    }

    /// The rows of the ranges with these digests were found, or were computed and flushed: the ranges are finished.
    pub fn finished(&self, ranges: &[(u64, u64)]) {
        // Rows that were found may be in files of others whose names are not durable yet.
        if let Err(error) = self.core.storage.sync() {
            tracing::debug!(job = self.name, "cannot make names durable: {error}");
            // Leased ranges are computed again, by this worker or another.
            return ranges.iter().for_each(|(range, _)| self.give_up(*range));
        }
        let mut worker = lock(&self.worker);
        for (range, digest) in ranges {
            worker.done(*range, *digest);
        }
        self.describe(&mut worker, runtime::now());
        if let Err(error) = worker.report() {
            tracing::debug!(job = self.name, "cannot report finished ranges: {error}");
        }
    }

    /// Leaves a range to others.
    pub fn give_up(&self, range: u64) {
        lock(&self.worker).give_up(range);
    }

    /// What each worker reported last, this one first.
    pub fn workers(&self) -> Vec<WorkerFacts> {
        let worker = lock(&self.worker);
        let facts = |record: &WorkerRecord, is_own| WorkerFacts {
            host: record.host.clone(),
            process: record.process,
            is_own,
            has_left: record.state == WorkerState::Left,
            counts: record.facts,
        };
        let others = worker.others.values().map(|other| facts(other, false));
        std::iter::once(facts(&worker.own, true)).chain(others).collect()
    }
}

impl Drop for JobWorker {
    fn drop(&mut self) {
        let mut worker = lock(&self.worker);
        self.describe(&mut worker, runtime::now());
        if let Err(error) = worker.leave() {
            tracing::debug!(job = self.name, "cannot report that this worker leaves: {error}");
        }
    }
}

fn described<F>(worker: &Worker<F>, other: Random) -> String {
    let record = worker.others.get(&other);
    record.map_or_else(
        || "a worker".to_owned(),
        |record| format!("process {} on {}", record.process, record.host),
    )
}
