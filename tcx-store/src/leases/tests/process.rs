//! A simulated worker: it computes batches of the ranges that it leases, one event after the other.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::world::{SimulatedFiles, World};
use crate::leases::contents::{Job, WorkerRecord};
use crate::leases::round::{Joined, Joining};
use crate::leases::worker::{Next, Setup, Worker};
use crate::sys::bytes::Random;

/// The size of the work, and how it is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) ranges: u64,
    /// Batches of a range.
    pub(super) batches: u64,
    /// Milliseconds of a batch.
    pub(super) batch_takes: u64,
    /// Milliseconds from one flush to the next.
    pub(super) flush_every: u64,
    pub(super) expiry: u64,
    /// Whether a worker reads the ids one after the other, and does not know how many there are.
    pub(super) is_sequence: bool,
}

impl Work {
    pub(super) fn job(&self) -> Job {
        let ids = (!self.is_sequence).then_some(self.ranges);
        Job { name: "warm".into(), view: 0, range_size: 1, ids, first: 7 }
    }
}

/// A batch: the number of its range, and its own.
pub(super) type Batch = (u64, u64);

/// The rows, and what it took to make them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) durable: BTreeSet<Batch>,
    /// Every batch that was computed, one after the other.
    pub(super) computed: Vec<Batch>,
    /// The newest change, and when each batch was invalidated last.
    pub(super) change: u64,
    pub(super) invalidated: std::collections::BTreeMap<Batch, u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Joins,
    Works,
    Covered,
    Dead,
}

pub(super) struct Process {
    world: Rc<RefCell<World>>,
    work: Work,
    id: Random,
    /// Where its clock began, and how many of its milliseconds pass in a thousand.
    clock: (Instant, u64),
    joining: Joining,
    worker: Option<Worker<SimulatedFiles>>,
    pub(super) phase: Phase,
    /// When it goes on, and when it renews its leases.
    pub(super) next: u64,
    pub(super) renews: u64,
    range: Option<u64>,
    batch: u64,
    buffer: Vec<(Batch, u64)>,
    finished: Vec<u64>,
    flushed: u64,
    /// The newest change when it joined.
    pub(super) joined_change: u64,
    renewed: u64,
    /// How often it has not renewed its leases for half of the expiry time.
    pub(super) silences: usize,
}

impl Process {
    pub(super) fn new(world: &Rc<RefCell<World>>, work: Work, number: u8, clock: (Instant, u64)) -> Self {
        let (now, id) = (world.borrow().now, Random([number; 16]));
        let start = now + world.borrow_mut().chance.below(1000) as u64;
        Self {
            world: world.clone(),
            work,
            id,
            clock,
            joining: Joining::new(work.job(), Duration::from_millis(work.expiry)),
            worker: None,
            phase: Phase::Joins,
            next: start,
            renews: u64::MAX,
            range: None,
            batch: 0,
            buffer: Vec::new(),
            finished: Vec::new(),
            flushed: start,
            joined_change: 0,
            renewed: start,
            silences: 0,
        }
    }

    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.phase, Phase::Joins | Phase::Works)
    }

    /// Its own monotonic clock.
    fn now(&self) -> Instant {
        self.clock.0 + Duration::from_millis(self.world.borrow().now * self.clock.1 / 1000)
    }

    pub(super) fn kill(&mut self) {
        (self.phase, self.next, self.renews) = (Phase::Dead, u64::MAX, u64::MAX);
        self.buffer.clear();
    }

    pub(super) fn sleep(&mut self, millis: u64) {
        self.next = self.next.saturating_add(millis);
        self.renews = self.renews.saturating_add(millis);
    }

    pub(super) fn renew(&mut self) {
        let (now, time) = (self.now(), self.world.borrow().now);
        self.renews = time + self.work.expiry / 8;
        let Some(worker) = &mut self.worker else { return };
        let renewed = worker.renew(now).is_ok();
        self.silences += usize::from(time - self.renewed >= self.work.expiry / 2);
        if renewed {
            self.renewed = time;
        }
    }

    /// Does what comes next.
    pub(super) fn step(&mut self, rows: &mut Rows) {
        match self.phase {
            Phase::Joins => self.join(rows),
            Phase::Works if self.range.is_some() => self.compute(rows),
            Phase::Works => self.find_range(rows),
            Phase::Covered | Phase::Dead => self.next = u64::MAX,
        }
    }

    fn join(&mut self, rows: &Rows) {
        let (now, time) = (self.now(), self.world.borrow().now);
        let files = SimulatedFiles(self.world.clone());
        match self.joining.join(&files, now) {
            Ok(Joined::Round(round)) => {
                let setup = Setup {
                    id: self.id,
                    expiry: Duration::from_millis(self.work.expiry),
                    range_size: 1,
                    ids: self.work.job().ids,
                    jumps: !self.work.is_sequence,
                    change: rows.change,
                };
                self.worker = Some(Worker::new(files, round, setup, WorkerRecord::default()));
                (self.phase, self.next, self.flushed) = (Phase::Works, time + 1, time);
                self.joined_change = rows.change;
                self.renewed = time;
                self.renew();
            }
            Ok(Joined::Wait(pause)) => self.next = time + pause.as_millis() as u64,
            Ok(Joined::Refused(other)) => panic!("all have the same job: {other:?}"),
            Err(_) => self.next = time + 100,
        }
    }

    fn find_range(&mut self, rows: &mut Rows) {
        let (now, time) = (self.now(), self.world.borrow().now);
        let Some(worker) = &mut self.worker else { return };
        assert_eq!(worker.disagrees, None);
        match worker.next(now, rows.change) {
            Ok(Next::Range(leased)) if leased.range >= self.work.ranges => {
                worker.give_up(leased.range);
                worker.learn_ids(self.work.ranges);
                self.next = time + 1;
            }
            Ok(Next::Range(leased)) => {
                (self.range, self.batch, self.next) = (Some(leased.range), 0, time + 1);
            }
            Ok(Next::Wait(pause)) => {
                self.flush(rows);
                self.next = time + (pause.as_millis() as u64).max(1);
            }
            Ok(Next::Covered) => {
                self.flush(rows);
                self.phase = Phase::Covered;
                self.leave();
            }
            Err(_) => self.next = time + 100,
        }
    }

    pub(super) fn leave(&mut self) {
        (self.next, self.renews) = (u64::MAX, u64::MAX);
        if let Some(worker) = &mut self.worker {
            let _ = worker.leave();
        }
    }

    /// Looks up a batch, and computes it if it is missing.
    fn compute(&mut self, rows: &mut Rows) {
        let (Some(range), Some(worker)) = (self.range, &mut self.worker) else { return };
        let time = self.world.borrow().now;
        let batch = (range, self.batch);
        if self.batch == self.work.batches || worker.is_lost(range) {
            if worker.is_lost(range) {
                worker.give_up(range);
            } else {
                self.finished.push(range);
            }
            (self.range, self.next) = (None, time + 1);
        } else {
            self.batch += 1;
            self.next = time + 1;
            if !rows.durable.contains(&batch) {
                rows.computed.push(batch);
                self.buffer.push((batch, rows.change));
                self.next = time + self.work.batch_takes;
            }
        }
        if time - self.flushed >= self.work.flush_every {
            self.flush(rows);
        }
    }

    /// Makes durable what was computed, and reports what is finished.
    fn flush(&mut self, rows: &mut Rows) {
        let time = self.world.borrow().now;
        self.flushed = time;
        for (batch, change) in self.buffer.drain(..) {
            // What was invalidated after it was looked up is dropped.
            if change == rows.change || rows.invalidated.get(&batch).is_none_or(|at| *at <= change) {
                rows.durable.insert(batch);
            }
        }
        let Some(worker) = &mut self.worker else { return };
        for range in self.finished.drain(..) {
            worker.done(range, range * 3);
        }
        let _ = worker.report();
    }
}
