//! A worker of a job: which range it computes next, what it knows of the others, and what it reports.
//!
//! 1. A range is leased by creating the file of its generation 0, which at most one worker does. A worker whose attempt fails
//!    lists the folder, and tries another range.
//! 2. A worker reports finished ranges in its record, after their rows are durable. The record also shows that it is alive.
//! 3. If no range is free, a worker takes over those of workers that are gone: it creates the file of the next generation, which at
//!    most one worker does. If no worker is gone, it waits.
//! 4. The job is finished for a worker as soon as it has seen every range reported. Each report was true when it was written.
//!
//! Nothing depends on a lease but what is computed twice. A lost file of a lease is a range that is leased again; a lost record is
//! ranges that are looked up again.

mod take_over;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use super::contents::{WorkerRecord, WorkerState, encode_end, encode_lease};
use super::files::LeaseFiles;
use super::name::{About, LeaseName, Round};
use super::ranges::RangeSet;
use super::watch::Watch;
use crate::sys::bytes::{Random, u64_at};
use crate::sys::checksum::checksum;

/// How often a worker tries to lease a free range before it looks for others that are gone.
const ATTEMPTS: u32 = 12;

/// The operations that may fail for a while.
const CREATE: usize = 0;
const LIST: usize = 1;

/// A leased range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leased {
    pub(crate) range: u64,
    /// Whether another worker had it, which may have computed some of it.
    pub(crate) is_taken_over: bool,
}

/// What a worker does next.
#[derive(Debug)]
pub(crate) enum Next {
    Range(Leased),
    /// Other workers have what is left: look again after this time.
    Wait(Duration),
    /// Every range is finished.
    Covered,
}

/// What a worker brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) id: Random,
    pub(crate) expiry: Duration,
    /// How many ids a range has.
    pub(crate) range_size: u64,
    pub(crate) ids: Option<u64>,
    /// Whether it may begin with any range: not where ranges are read one after the other.
    pub(crate) jumps: bool,
    /// The newest change that it knows: what others finished before that is looked up again.
    pub(crate) change: u64,
}

/// Two workers disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherIds {
    pub(crate) worker: Random,
    pub(crate) theirs: u64,
    pub(crate) own: u64,
}

#[derive(Debug)]
pub(crate) struct Worker<F> {
    pub(crate) files: F,
    pub(crate) round: Round,
    setup: Setup,
    pub(crate) own: WorkerRecord,
    /// Every range that is known to be finished.
    covered: RangeSet,
    /// These, and every range with a lease.
    taken: RangeSet,
    /// The newest generation of the leases of ranges that are not finished.
    leases: BTreeMap<u64, u32>,
    held: BTreeMap<u64, Held>,
    watch: Watch,
    pub(crate) others: BTreeMap<Random, WorkerRecord>,
    /// The workers whose records were listed last.
    listed: BTreeSet<Random>,
    /// Whose the leases are, as far as they were read.
    owners: BTreeMap<(u64, u32), Random>,
    chance: u64,
    cursor: u64,
    /// Since when leases cannot be created, and since when they cannot be listed.
    failing: [Option<Instant>; 2],
    pub(crate) disagrees: Option<OtherIds>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    generation: u32,
    is_lost: bool,
    /// The newest change that was known before its rows were looked up.
    change: u64,
}

impl<F: LeaseFiles> Worker<F> {
    /// A worker of a round that it has [joined](super::round::Joining). `own` says where it runs.
    pub(crate) fn new(files: F, round: Round, setup: Setup, own: WorkerRecord) -> Self {
        let chance = u64_at(&setup.id.0, 0).unwrap_or_default();
        let own = WorkerRecord { ids: setup.ids, expiry: Some(setup.expiry), ..own };
        let mut worker = Self {
            files,
            round,
            setup,
            own,
            covered: RangeSet::default(),
            taken: RangeSet::default(),
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
            watch: Watch::new(setup.expiry),
            others: BTreeMap::new(),
            listed: BTreeSet::new(),
            owners: BTreeMap::new(),
            chance,
            cursor: 0,
            failing: [None; 2],
            disagrees: None,
        };
        worker.cursor = worker.somewhere();
        worker
    }

    /// How many ranges there are, if it is known.
    pub(crate) fn ranges(&self) -> Option<u64> {
        self.own.ids.map(|ids| ids.div_ceil(self.setup.range_size))
    }

    pub(crate) fn is_covered(&self) -> bool {
        self.ranges().is_some_and(|ranges| self.covered.has_all_below(ranges))
    }

    /// The number of ids is known now.
    pub(crate) fn learn_ids(&mut self, ids: u64) {
        let theirs = *self.own.ids.get_or_insert(ids);
        if theirs != ids {
            let other = self.others.iter().find(|(_, other)| other.ids == Some(theirs));
            let worker = other.map_or(self.setup.id, |(worker, _)| *worker);
            self.disagrees = Some(OtherIds { worker, theirs, own: ids });
        }
    }

    fn name(&self, about: About) -> String {
        LeaseName { round: self.round, about }.to_string()
    }

    /// The next range to compute, by a worker that knows this change.
    ///
    /// # Errors
    ///
    /// Returns an error if no operation on the files of leases has worked for the expiry time.
    pub(crate) fn next(&mut self, now: Instant, change: u64) -> io::Result<Next> {
        for attempt in 0..ATTEMPTS {
            if self.is_covered() {
                return Ok(Next::Covered);
            }
            let Some(range) = self.free(attempt) else { break };
            match self.lease(range, 0) {
                Ok(true) => return Ok(self.begin(range, 0, change)),
                Ok(false) => self.look(now)?,
                Err(error) => {
                    self.failed(CREATE, error, now)?;
                    break;
                }
            }
        }
        self.look(now)?;
        if self.is_covered() {
            return Ok(Next::Covered);
        }
        let taken = self.take_over(now)?;
        Ok(match taken {
            Some((range, generation)) => self.begin(range, generation, change),
            None => Next::Wait(self.watch.pause()),
        })
    }

    fn begin(&mut self, range: u64, generation: u32, change: u64) -> Next {
        self.failing[CREATE] = None;
        self.held.insert(range, Held { generation, is_lost: false, change });
        self.taken.insert(range);
        self.leases.remove(&range);
        self.cursor = range + 1;
        Next::Range(Leased { range, is_taken_over: generation > 0 })
    }

    /// A range without a lease. Each failed attempt makes it less likely that other workers take the same one next.
    fn free(&mut self, attempt: u32) -> Option<u64> {
        let end = self.ranges().unwrap_or(u64::MAX);
        if attempt > 0 && self.setup.jumps {
            self.cursor = self.somewhere();
        }
        let skip = if self.setup.jumps { 0 } else { self.random() % (1 << attempt) };
        let taken = &self.taken;
        let first = taken.nth_free(self.cursor, end, skip).or_else(|| taken.nth_free(self.cursor, end, 0));
        first.or_else(|| taken.nth_free(0, end, 0))
    }

    fn somewhere(&mut self) -> u64 {
        let ranges = self.ranges().filter(|_| self.setup.jumps).unwrap_or_default();
        if ranges > 0 { self.random() % ranges } else { 0 }
    }

    /// splitmix64
    fn random(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let bits = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Creates a lease of this worker; whether it is this worker's now.
    fn lease(&self, number: u64, generation: u32) -> io::Result<bool> {
        let (name, bytes) = (self.name(About::Range { number, generation }), encode_lease(self.setup.id));
        self.files.create(&name, &bytes).or_else(|error| match self.files.read(&name) {
            // It was created, although the answer was an error.
            Ok(Some(found)) if found == bytes => Ok(true),
            _ => Err(error),
        })
    }

    /// Takes note of a failure.
    ///
    /// # Errors
    ///
    /// Returns it if nothing else has happened for the expiry time.
    fn failed(&mut self, operation: usize, error: io::Error, now: Instant) -> io::Result<()> {
        let since = *self.failing[operation].get_or_insert(now);
        if now.saturating_duration_since(since) >= self.setup.expiry { Err(error) } else { Ok(()) }
    }

    /// Learns from the files what the others do.
    fn look(&mut self, now: Instant) -> io::Result<()> {
        let names = match self.files.list() {
            Ok(names) => names,
            Err(error) => return self.failed(LIST, error, now),
        };
        self.failing[LIST] = None;
        let (mut leases, mut workers) = (BTreeMap::new(), BTreeSet::new());
        let names = names.iter().filter_map(|name| LeaseName::parse(name));
        for name in names.filter(|name| name.round == self.round) {
            match name.about {
                About::Range { number, generation } => {
                    let newest = leases.entry(number).or_insert(generation);
                    *newest = generation.max(*newest);
                }
                About::Worker(worker) if worker != self.setup.id => _ = workers.insert(worker),
                About::Worker(_) | About::Job | About::End => {}
            }
        }
        // The record of a worker that has left is its last one.
        let has_left =
            |worker: &Random| self.others.get(worker).is_some_and(|other| other.state == WorkerState::Left);
        let at_work: Vec<Random> = workers.iter().filter(|worker| !has_left(worker)).copied().collect();
        for worker in at_work {
            self.look_at(worker, now);
        }
        self.watch.looked();
        self.listed = workers;
        self.know(leases);
        Ok(())
    }

    /// These are the leases.
    fn know(&mut self, mut leases: BTreeMap<u64, u32>) {
        for (range, held) in &mut self.held {
            held.is_lost |= leases.get(range).is_some_and(|generation| *generation > held.generation);
        }
        self.taken = self.covered.clone();
        for range in leases.keys().chain(self.held.keys()) {
            self.taken.insert(*range);
        }
        // Before a worker knew how many ids there are, it may have leased a range behind the last one.
        let end = self.ranges().unwrap_or(u64::MAX);
        let is_open =
            |range: u64| range < end && !self.covered.contains(range) && !self.held.contains_key(&range);
        leases.retain(|range, _| is_open(*range));
        self.owners.retain(|(range, generation), _| leases.get(range) == Some(generation));
        self.leases = leases;
    }

    fn look_at(&mut self, worker: Random, now: Instant) {
        let Ok(found) = self.files.read(&self.name(About::Worker(worker))) else {
            return self.watch.look_failed(worker, now);
        };
        let is_new = self.watch.look(worker, found.as_deref().map(checksum), now);
        if !is_new {
            return;
        }
        let Some(record) = found.as_deref().and_then(WorkerRecord::decode) else { return };
        for (change, done) in &record.done {
            // The rows of what was finished before may have been invalidated. Those of a worker that is gone may have been evicted, expired or
            // removed since, which is no change: its record may be of any age.
            if *change >= self.setup.change && self.watch.has_changed(worker) {
                self.covered.merge(done);
            }
        }
        match (self.own.ids, record.ids) {
            (Some(own), Some(theirs)) if own != theirs => {
                self.disagrees = Some(OtherIds { worker, theirs, own });
            }
            (None, Some(_)) => self.own.ids = record.ids,
            _ => {}
        }
        self.others.insert(worker, record);
    }

    /// Whether another worker has taken over the range: this one was silent for too long.
    pub(crate) fn is_lost(&self, range: u64) -> bool {
        self.held.get(&range).is_none_or(|held| held.is_lost)
    }

    /// The range is finished: its rows are durable.
    pub(crate) fn done(&mut self, range: u64, digest: u64) {
        let Some(held) = self.held.remove(&range) else { return };
        if self.covered.contains(range) && held.is_lost {
            return;
        }
        self.covered.insert(range);
        self.taken.insert(range);
        self.own.finished(range, held.change, digest);
        self.own.facts.taken_over += u64::from(held.generation > 0);
    }

    /// Another worker finishes the range.
    pub(crate) fn give_up(&mut self, range: u64) {
        self.held.remove(&range);
    }

    /// Takes back what it has reported: its ids are not those of the others.
    pub(crate) fn withdraw(&mut self) -> io::Result<()> {
        self.own.done.clear();
        self.own.digests.clear();
        self.held.clear();
        self.covered = RangeSet::default();
        self.report()
    }

    /// Writes the record, so that the others see that this worker is alive, and what it has done.
    pub(crate) fn report(&mut self) -> io::Result<()> {
        self.own.counter += 1;
        self.files.replace(&self.name(About::Worker(self.setup.id)), &self.own.encode())
    }

    /// As [`report`](Self::report); learns what the others do, and which of its ranges were taken over.
    pub(crate) fn renew(&mut self, now: Instant) -> io::Result<()> {
        self.report()?;
        self.look(now)
    }

    /// Works on nothing from here on. A finished round is marked as ended.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.own.state = WorkerState::Left;
        self.held.clear();
        let reported = self.report();
        if self.is_covered() {
            self.files.create(&self.name(About::End), &encode_end(self.own.ids.unwrap_or_default()))?;
        }
        reported
    }
}
