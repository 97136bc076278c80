//! Filling the cache ahead of its use.

use std::time::{Duration, Instant};

use crate::Result;
use crate::cache::mode::Rows;
use crate::cache::progress::Bar;
use crate::cached::Cached;
use crate::cached::view::View;
use crate::ids::Id;
use crate::module::extractor::CachedModule;
use crate::module::missing::Missing;

/// The number of ids that are looked up together: a list may be as long as a data set.
const TOGETHER: usize = 1 << 16;

/// The finished work that a killed process may lose, if flushing is fast.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What is computed between two flushes takes at least this many times as long as the first: a flush reads all weights. The
/// writer writes by itself in between, after each `flush_interval`.
const FLUSH_SHARE: u32 = 100;

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
    pub fn warm<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<WarmReport> {
        self.warm_view(ids, 0, load, || true)
    }

    /// Stops between two batches as soon as `goes_on` returns `false`.
    pub(crate) fn warm_view<I: Id<M::Key>>(
        &self,
        ids: &[I],
        view: u32,
        load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
        goes_on: impl Fn() -> bool,
    ) -> Result<WarmReport> {
        self.writable()?;
        let dropped = self.rows().stats().rows_dropped;
        let mut report = WarmReport { asked: ids.len(), ..WarmReport::default() };
        let rows = self.rows().for_call();
        let done = self.warm_batches(&rows, ids, view, load, goes_on, &mut report.computed);
        // Whatever stopped it, what is finished stays.
        let flushed = self.shared().check_usable().and_then(|()| rows.flush());
        report.not_kept = self.rows().stats().rows_dropped.saturating_sub(dropped);
        done.and(flushed)?;
        Ok(report)
    }

    fn warm_batches<I: Id<M::Key>>(
        &self,
        store: &Rows,
        ids: &[I],
        view: u32,
        mut load: impl FnMut(Missing<'_, I>) -> Result<M::Input>,
        goes_on: impl Fn() -> bool,
        computed: &mut usize,
    ) -> Result<()> {
        let _instead = self.computing.behind_bar();
        let bar = Bar::new(M::ID, ids.len(), self.shared().shown());
        let (mut flushed, mut pause) = (Instant::now(), FLUSH_EVERY);
        for (part, some) in ids.chunks(TOGETHER).enumerate() {
            let there = self.rows().peek(self.pack(some, view)?)?;
            let missing = there.distinct_missing_positions();
            bar.found(some.len() - missing.len());
            for batch in missing.chunks(self.batch_size) {
                if !goes_on() {
                    return Ok(());
                }
                let mut rows = self.rows().lookup(there.keys().select(batch))?;
                if rows.missing() > 0 {
                    *computed += rows.missing();
                    self.load_missing(store, &mut rows, |asked| {
                        let place = |&position: &usize| part * TOGETHER + batch[position];
                        load(Missing::new(ids, &asked.iter().map(place).collect::<Vec<_>>()))
                    })?;
                }
                bar.computed(batch.len());
                if flushed.elapsed() >= pause {
                    let start = Instant::now();
                    self.shared().check_usable()?;
                    store.flush()?;
                    flushed = Instant::now();
                    pause = FLUSH_EVERY.max((flushed - start).saturating_mul(FLUSH_SHARE));
                }
            }
        }
        Ok(())
    }
}

impl<M: CachedModule> View<'_, M> {
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
        self.cached().warm_view(ids, self.number(), load, || true)
    }
}
