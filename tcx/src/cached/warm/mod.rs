//! Filling the cache ahead of its use.

mod batches;
pub(crate) mod shared;

use std::cell::RefCell;
use std::fmt;

use indicatif::HumanCount;

use self::batches::{Batch, Batches, Progress};
use self::shared::settings::Sharing;
use crate::cache::claims::Request;
use crate::cache::progress::Bar;
use crate::cache::stop::Stop;
use crate::cached::Cached;
use crate::cached::view::View;
use crate::ids::Id;
use crate::module::extractor::CachedModule;
use crate::module::missing::Missing;
use crate::{Result, pipeline};

/// What [`Cached::warm`] has done.
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "warmed_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let words = tcx::Cache::open(dir.path())?.module(Words {})?;
/// words.forward(&["a"], &vec!["one".to_owned()])?;
/// let report = words.warm(&["a", "b"], |missing| {
///     Ok(missing.ids().map(|id| format!("text {id}")).collect())
/// })?;
/// assert_eq!((report.asked, report.computed, report.not_kept), (2, 1, 0));
/// assert_eq!(report.to_string(), "1 of 2 samples computed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmReport {
    /// The ids that were asked for, repeated ones counted each time.
    pub asked: usize,
    /// The samples that were missing, and were loaded and computed.
    pub computed: usize,
    /// The rows that this process computed during the call and could not keep, because writing was off or the folder was full.
    pub not_kept: u64,
    /// Whether it ended early, because it was [asked to](Warming::stop).
    pub stopped: bool,
}

/// One line: `1,888 of 2,000 samples computed, 8 not kept, stopped early`.
impl fmt::Display for WarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, computed, not_kept, stopped } = *self;
        let [asked, computed] = [asked, computed].map(|samples| HumanCount(samples as u64));
        write!(f, "{computed} of {asked} samples computed")?;
        if not_kept > 0 {
            write!(f, ", {} not kept", HumanCount(not_kept))?;
        }
        f.write_str(if stopped { ", stopped early" } else { "" })
    }
}

impl<M: CachedModule> Cached<M> {
    /// Computes the missing rows of these ids, in batches of [`batch_size`](Self::batch_size), and makes them durable. It
    /// returns no outputs, so the list may be as long as a data set. `load` is called once for each batch. A bar on a terminal
    /// shows the progress ([`CacheBuilder::progress`](crate::CacheBuilder::progress) switches it off).
    ///
    /// It continues where an earlier run stopped: stored rows are not computed again. An error of `load` stops it, after it has
    /// made the finished rows durable. A killed process loses about a second of finished work. If flushing is slow, it loses
    /// the rows that the writer has not sealed yet ([`Tuning::flush_interval`](crate::Tuning::flush_interval)).
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "warm_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let words = cache.module(Words {})?.batch_size(32);
    /// let ids: Vec<String> = (0..100).map(|i| format!("text {i}")).collect();
    /// let report = words.warm(&ids, |missing| Ok(missing.ids().cloned().collect()))?;
    /// assert_eq!(report.computed, 100);
    /// assert_eq!(words.warm(&ids, |_| unreachable!("everything is there"))?.computed, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch). Also returns an error if the mode of the handle keeps nothing, or if rows cannot be written.
    ///
    /// # Panics
    ///
    /// If the module panics. Finished rows are in the cache.
    ///
    /// [`warming`](Self::warming) does the same with threads that load ahead of the one that computes.
    pub fn warm<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<WarmReport> {
        self.warm_view(ids, 0, load, &Stop::new())
    }

    /// As [`warm`](Self::warm), with settings: threads that load ahead, a request to stop.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "warming_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// let words = cache.module(Words {})?.batch_size(32);
    /// let ids: Vec<String> = (0..100).map(|i| format!("text {i}")).collect();
    /// // Two threads load the next batches while this one computes.
    /// let report = words.warming().workers(2).run(&ids, |missing| Ok(missing.ids().cloned().collect()))?;
    /// assert_eq!((report.computed, report.stopped), (100, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warming(&self) -> Warming<'_, M> {
        Warming { view: self.view(0), workers: 1, stop: Stop::new(), sharing: Sharing::default() }
    }

    pub(crate) fn warm_view<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        mut load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
        stop: &Stop,
    ) -> Result<WarmReport> {
        self.warm_with(ids, view, stop, |batches, progress| {
            while let Some(batch) = batches.next(progress, true)? {
                let loaded = load(Missing::new(ids, &batch.places));
                progress.compute(self, batch, loaded)?;
            }
            Ok(())
        })
    }

    /// Has `run` compute the batches of a list, and makes durable what it has computed.
    fn warm_with<'a, I: Id<M::Key>>(
        &'a self,
        ids: &'a [I],
        view: u32,
        stop: &'a Stop,
        run: impl FnOnce(&mut Batches<'a, M, I>, &mut Progress<'_>) -> Result<()>,
    ) -> Result<WarmReport> {
        self.writable()?;
        let before = self.rows().stats().rows_not_kept();
        let request = Request::current();
        let entered = request.enter();
        let instead = self.computing.behind_bar();
        let rows = self.rows().for_call();
        let mut progress = Progress::new(&rows, Bar::new(M::ID, ids.len(), self.shared().shown()));
        let mut batches = Batches::new(self, ids, view, stop);
        let done = run(&mut batches, &mut progress);
        drop((instead, entered));
        // Whatever stopped it, what is finished stays.
        let flushed = self.shared().check_usable().and_then(|()| rows.flush());
        let not_kept = self.rows().stats().rows_not_kept().saturating_sub(before);
        done.and(flushed)?;
        let (computed, stopped) = (progress.computed, batches.stopped);
        Ok(WarmReport { asked: ids.len(), computed, not_kept, stopped })
    }
}

/// Settings of a [`Cached::warm`]; made by [`Cached::warming`].
///
/// [`workers`](Self::workers) threads load batches ahead, while the thread that calls [`run`](Self::run) computes. At most one
/// batch more than there are workers is loaded and not computed yet, so that is how much memory inputs take. Rows are computed
/// in the order of the ids, except those that another request of this process is loading: they come last, if they are still
/// missing then. So several calls with the same ids, in threads of one process, share the work.
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "warming_settings_v1", key = i64)]
/// # struct Squares {}
/// # impl Extractor for Squares {
/// #     type Input = Vec<i64>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|x| x * x).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicBool;
///
/// # let squares = tcx::Cache::open(dir.path())?.module(Squares {})?;
/// let interrupted = Arc::new(AtomicBool::new(false)); // to be set by a handler of signals
/// let warming = squares.warming().workers(4).stop(interrupted);
/// let report = warming.run(&[1, 2, 3], |missing| Ok(missing.ids().copied().collect()))?;
/// assert_eq!((report.computed, report.stopped), (3, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "`run` fills the cache"]
pub struct Warming<'a, M> {
    view: View<'a, M>,
    workers: usize,
    stop: Stop,
    sharing: Sharing,
}

impl<M: CachedModule> Warming<'_, M> {
    /// How many threads load (1), at most 1,024: more are an error of [`run`](Self::run).
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads.max(1);
        self
    }

    /// Ends early when this is [asked for](Stop): batches that are being loaded are still computed, all is made durable, and the
    /// report says so.
    pub fn stop(mut self, stop: impl Into<Stop>) -> Self {
        self.stop = stop.into();
        self
    }

    /// Computes what is missing for these ids, and makes it durable, as [`Cached::warm`]. `load` is called once for each batch,
    /// in threads of its own, several at a time.
    ///
    /// # Errors
    ///
    /// As [`Cached::warm`]. After an error of `load`, the batches before its batch are computed.
    ///
    /// # Panics
    ///
    /// If the module or `load` panics. What was finished is in the cache.
    pub fn run<I: Id<M::Key> + Sync>(
        self,
        ids: &[I],
        load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    ) -> Result<WarmReport>
    where
        M::Input: Send,
    {
        self.check()?;
        let Self { view, workers, stop, sharing: _ } = self;
        let cached = view.cached();
        cached.warm_with(ids, view.number(), &stop, |batches, progress| {
            ahead(cached, workers, batches, progress, |places| load(Missing::new(ids, places)))
        })
    }
}

impl<M: CachedModule> Warming<'_, M> {
    /// Refuses settings that make no sense.
    fn check(&self) -> Result<()> {
        pipeline::check_threads("workers", self.workers).map_err(|error| error.in_module(M::ID))
    }
}

/// Computes the batches of a list, which `workers` threads load ahead.
fn ahead<'a, M: CachedModule, I: Id<M::Key> + Sync>(
    cached: &'a Cached<M>,
    workers: usize,
    batches: &mut Batches<'a, M, I>,
    progress: &mut Progress<'_>,
    load: impl Fn(&[usize]) -> Result<M::Input> + Sync,
) -> Result<()>
where
    M::Input: Send,
{
    let most_rows = cached.batch_size.saturating_mul(workers + 1);
    let progress = RefCell::new(progress);
    let request = Request::current();
    let next = |is_idle| {
        let batch = batches.next(&progress.borrow(), is_idle)?;
        Ok(batch.map(|batch| {
            let rows = batch.places.len();
            (batch, rows)
        }))
    };
    let work = |batch: Batch| {
        let _entered = request.enter();
        let loaded = load(&batch.places);
        (batch, loaded)
    };
    let take = |(batch, loaded)| progress.borrow_mut().compute(cached, batch, loaded);
    pipeline::ahead(workers, most_rows, next, work, take)
}

impl<M: CachedModule> fmt::Debug for Warming<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, workers, stop, sharing } = self;
        let mut shown = f.debug_struct("Warming");
        shown
            .field("view", view)
            .field("workers", workers)
            .field("stop", stop)
            .field("sharing", sharing)
            .finish()
    }
}

impl<'a, M: CachedModule> View<'a, M> {
    /// As [`Cached::warm`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::warm`].
    pub fn warm<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<WarmReport> {
        self.cached().warm_view(ids, self.number(), load, &Stop::new())
    }

    /// As [`Cached::warming`], for this view.
    pub fn warming(&self) -> Warming<'a, M> {
        Warming { view: *self, workers: 1, stop: Stop::new(), sharing: Sharing::default() }
    }
}
