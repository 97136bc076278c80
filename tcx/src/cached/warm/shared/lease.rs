//! Sharing a list of ids with other processes, by leases of work ranges.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tcx_store::unstable::{Job, JobWorker, NextRange, Sharing as StoreSharing};

use super::fill::{Filled, Filler};
use super::report::SharedReport;
use super::sequence::Sequence;
use crate::cache::progress::{Bar, Shown};
use crate::cached::Cached;
use crate::cached::warm::Warming;
use crate::cached::warm::batches::Progress;
use crate::ids::Id;
use crate::module::extractor::CachedModule;
use crate::module::missing::Missing;
use crate::{Error, ErrorKind, Result};

/// How often a call that waits for other workers looks whether it is to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

impl<M: CachedModule> Cached<M> {
    /// As [`warm`](Self::warm), together with every process that makes the same call for the same cache directory, on this machine
    /// and on others: workers. Each worker leases a part of the ids at a time, and computes what is missing there. The call returns
    /// when every id was found or computed by some worker, and its row is durable.
    ///
    /// A worker may come, be killed or leave at any time. The others take over what it leaves after [two
    /// minutes](Warming::expiry) without a sign of life. A worker that is taken for gone and is not computes some samples twice.
    /// That costs time, and never a row: leases only divide the work.
    ///
    /// All workers need the same ids in the same order. The list need not be in memory: see [`Sequence`].
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "warm_shared_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let squares = cache.module(Squares {})?;
    /// let ids = tcx::Sequence::by_position(1000, |position| position as i64);
    /// // The same in every process.
    /// let report = squares.warm_shared(ids, |missing| Ok(missing.ids().copied().collect()))?;
    /// assert_eq!((report.asked, report.computed, report.workers.len()), (1000, 1000, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`warm`](Self::warm). Also returns an error if workers of a job with this name have other ids, if the mode is
    /// [`Recompute`](crate::Mode::Recompute), if the folder is full, or if leases can be neither written nor listed for the
    /// [expiry time](Warming::expiry).
    ///
    /// # Panics
    ///
    /// If the module or `load` panics. Finished rows are in the cache.
    pub fn warm_shared<'a, I: Id<M::Key> + Sync + 'a>(
        &self,
        ids: impl Into<Sequence<'a, I>>,
        load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    ) -> Result<SharedReport>
    where
        M::Input: Send,
    {
        self.warming().run_shared(ids, load)
    }
}

impl<M: CachedModule> Warming<'_, M> {
    /// As [`Cached::warm_shared`], with settings. Threads that load ahead do so within a work range.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "run_shared_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let squares = tcx::Cache::open(dir.path())?.module(Squares {})?;
    /// let ids = Vec::from_iter(0..1000);
    /// let warming = squares.warming().workers(4).job("train").range_size(500);
    /// let report = warming.run_shared(&ids, |missing| Ok(missing.ids().copied().collect()))?;
    /// assert_eq!(report.workers[0].ranges, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Cached::warm_shared`].
    ///
    /// # Panics
    ///
    /// As [`Cached::warm_shared`].
    pub fn run_shared<'a, I: Id<M::Key> + Sync + 'a>(
        self,
        ids: impl Into<Sequence<'a, I>>,
        load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    ) -> Result<SharedReport>
    where
        M::Input: Send,
    {
        self.check()?;
        let Self { view, workers, stop, sharing } = self;
        let (cached, view) = (view.cached(), view.number());
        let mut ids: Sequence<'a, I> = ids.into();
        let store = cached.writable()?;
        if cached.rows().recomputes() {
            let error = Error::new(
                ErrorKind::WrongMode,
                "cannot share work in mode Recompute: each handle computes every sample",
            );
            return Err(error
                .in_module(M::ID)
                .with_remedy("invalidate the rows, and open the module in mode ReadWrite"));
        }
        let in_module = |error: Error| error.in_module(M::ID);
        let range_size = sharing.range_size(ids.len()).map_err(in_module)?;
        let expiry = sharing.expiry().map_err(in_module)?;
        let first = cached.pack(ids.read(0, range_size)?, view)?.digest_all();
        let job = Job { name: sharing.job, view, range_size, ids: ids.len(), first };
        let filler = Filler { cached, view, workers, stop: &stop, load };
        let sharing = StoreSharing { expiry, jumps: ids.jumps(), host: None };
        let Some(worker) = store.join_job(&job, sharing, || stop.is_stopped())? else {
            return Ok(SharedReport { stopped: true, ..SharedReport::default() });
        };
        let worker = &worker;
        thread::scope(|scope| {
            // Dropped at the end, also by a panic: the thread ends then.
            let (_ends, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(worker.renews_every()) == Err(RecvTimeoutError::Timeout) {
                    worker.renew();
                }
            });
            Share { filler, worker, ids, range_size, pending: Vec::new(), computed: 0, settled: 0 }.run()
        })
    }
}

/// The part of a worker in a job.
struct Share<'a, 'i, M, L, I> {
    filler: Filler<'a, M, L>,
    worker: &'a JobWorker,
    ids: Sequence<'i, I>,
    range_size: u64,
    /// Ranges whose rows are not durable yet, with the digests of their ids.
    pending: Vec<(u64, u64)>,
    /// How many of the computed samples were counted, and how many of them are durable.
    computed: usize,
    settled: usize,
}

impl<M: CachedModule, L, I: Id<M::Key> + Sync> Share<'_, '_, M, L, I>
where
    M::Input: Send,
    L: Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
{
    fn run(mut self) -> Result<SharedReport> {
        let cached = self.filler.cached;
        let before = cached.rows().stats().rows_not_kept();
        let _instead = cached.computing.behind_bar();
        let rows = cached.rows().for_call();
        let samples = self.ids.len().and_then(|len| usize::try_from(len).ok()).unwrap_or_default();
        let mut progress = Progress::new(&rows, Bar::new(M::ID, samples, Shown::Nothing));
        let done = self.work(&mut progress, before);
        if progress.has_failed {
            // Others look these ranges up, and compute what they lack.
            self.pending.clear();
        }
        // Whatever stopped it, what is finished stays, and others need not do it again.
        let settled = self.settle(&mut progress, before);
        let stopped = done?;
        settled?;
        Ok(SharedReport {
            asked: self.worker.ids().or(self.ids.len()).unwrap_or_default(),
            computed: progress.computed as u64,
            workers: self.worker.workers().into_iter().map(Into::into).collect(),
            stopped,
        })
    }

    /// Computes ranges until all are finished; returns whether it was stopped before.
    fn work(&mut self, progress: &mut Progress<'_>, before: u64) -> Result<bool> {
        loop {
            if self.filler.stop.is_stopped() {
                return Ok(true);
            }
            let next = self.worker.next().inspect_err(|_| self.pending.clear())?;
            // Before anything is computed.
            self.compare()?;
            match next {
                NextRange::Finished => return self.check_len().map(|()| false),
                NextRange::Wait(pause) => {
                    let has_finished = !self.pending.is_empty();
                    self.settle(progress, before)?;
                    // Its own ranges may have been the last ones.
                    if !has_finished {
                        self.wait(pause);
                    }
                }
                NextRange::Compute { range, is_taken_over } => {
                    // For the rows of the worker that is gone. Those that are not found are computed.
                    if is_taken_over && let Err(error) = self.filler.cached.refresh() {
                        tracing::debug!(module = M::ID, "cannot list the folder: {error}");
                    }
                    if self.compute(range, progress)? == Filled::Stopped {
                        return Ok(true);
                    }
                    if progress.is_flush_due() {
                        self.settle(progress, before)?;
                    }
                }
            }
        }
    }

    fn compute(&mut self, range: u64, progress: &mut Progress<'_>) -> Result<Filled> {
        let (worker, cached) = (self.worker, self.filler.cached);
        let start = range.saturating_mul(self.range_size);
        let first = usize::try_from(start).map_err(|_| Error::batch("there are more ids than positions"))?;
        let ids = self.ids.read(start, self.range_size)?;
        let digest = cached.pack(ids, self.filler.view)?.digest_all();
        let asked = ids.len() as u64;
        let filled = if ids.is_empty() {
            Filled::Lost
        } else {
            self.filler.fill(ids, first, progress, || {
                worker.note_progress();
                worker.is_lost(range)
            })?
        };
        if asked < self.range_size
            && let Some(len) = self.ids.len()
        {
            worker.learn_ids(len);
        }
        let computed = (progress.computed - self.computed) as u64;
        self.computed = progress.computed;
        match filled {
            Filled::Whole => self.pending.push((range, digest)),
            Filled::Lost | Filled::Stopped => worker.give_up(range),
        }
        let found = if filled == Filled::Whole { asked.saturating_sub(computed) } else { 0 };
        worker.count(computed, found);
        Ok(filled)
    }

    /// Makes rows durable, and reports the ranges that are finished by that.
    fn settle(&mut self, progress: &mut Progress<'_>, before: u64) -> Result<()> {
        let cached = self.filler.cached;
        if self.pending.is_empty() && progress.computed == self.settled {
            return Ok(());
        }
        progress.flush(cached)?;
        self.settled = progress.computed;
        if cached.rows().stats().rows_not_kept() > before {
            let error = Error::new(
                ErrorKind::Full,
                "rows that were computed could not be kept, so no worker can finish the job",
            );
            return Err(error
                .in_module(M::ID)
                .with_remedy("make room, or raise `max_bytes`, and call this again"));
        }
        if !self.pending.is_empty() {
            self.worker.finished(&self.pending);
            self.pending.clear();
        }
        Ok(())
    }

    /// Compares the ids that other workers reported with those of this one.
    fn compare(&mut self) -> Result<()> {
        while let Some(comparison) = self.worker.comparison() {
            // Where ids are read one after the other, those of another range are as expensive as all before it.
            if !self.ids.jumps() {
                continue;
            }
            let start = comparison.range.saturating_mul(self.range_size);
            let ids = self.ids.read(start, self.range_size)?;
            if self.filler.cached.pack(ids, self.filler.view)?.digest_all() != comparison.digest {
                self.pending.clear();
                return Err(Error::from(self.worker.differs(&comparison)).in_module(M::ID));
            }
        }
        Ok(())
    }

    /// Ids that are read one after the other are counted by the worker that comes to their end. The others compare that with their own.
    fn check_len(&mut self) -> Result<()> {
        let Some(all) = self.worker.ids().filter(|_| self.ids.len().is_none()) else { return Ok(()) };
        let last = all.saturating_sub(1);
        let found = self.ids.read(last, 2)?.len() as u64;
        self.worker.learn_ids(self.ids.len().unwrap_or(last + found));
        self.worker.next()?;
        Ok(())
    }

    fn wait(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !self.filler.stop.is_stopped() {
            thread::sleep(LOOKS_EVERY.min(pause));
        }
    }
}
