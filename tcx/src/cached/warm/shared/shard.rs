//! Dividing a list of ids by rank: every process computes its own part, and none waits for another.

use super::fill::{Filled, Filler};
use super::rank::Rank;
use super::report::ShardReport;
use super::sequence::Sequence;
use crate::cache::progress::Bar;
use crate::cached::Cached;
use crate::cached::warm::Warming;
use crate::cached::warm::batches::Progress;
use crate::ids::Id;
use crate::module::extractor::CachedModule;
use crate::module::missing::Missing;
use crate::{Error, Result};

impl<M: CachedModule> Cached<M> {
    /// As [`warm`](Self::warm), for the part of the ids of this process. [`Rank::from_env`] says which that is: torchrun, Slurm and
    /// Kubernetes set it. Every process makes durable what it computes; none waits for another.
    ///
    /// If a rank dies, its part stays incomplete. The next call computes what is missing in it, and reports how much that was. To
    /// have other processes take over at once, call [`warm_shared`](Self::warm_shared).
    ///
    /// ```no_run
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "warm_sharded_v1", key = i64)]
    /// # struct Squares {}
    /// # impl Extractor for Squares {
    /// #     type Input = Vec<i64>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|x| x * x).collect())
    /// #     }
    /// # }
    /// # let squares = tcx::Cache::open("cache")?.module(Squares {})?;
    /// let ids = Vec::from_iter(0..100_000);
    /// let report = squares.warm_sharded(&ids, |missing| Ok(missing.ids().copied().collect()))?;
    /// println!("{report}"); // rank 3 of 8: 12,500 of 12,500 samples computed
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`warm`](Self::warm), and as [`Rank::from_env`].
    ///
    /// # Panics
    ///
    /// If the module or `load` panics. Finished rows are in the cache.
    pub fn warm_sharded<'a, I: Id<M::Key> + Sync + 'a>(
        &self,
        ids: impl Into<Sequence<'a, I>>,
        load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    ) -> Result<ShardReport>
    where
        M::Input: Send,
    {
        self.warming().run_sharded(ids, load)
    }
}

impl<M: CachedModule> Warming<'_, M> {
    /// As [`Cached::warm_sharded`], with settings.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "run_sharded_v1", key = i64)]
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
    /// use tcx::Rank;
    ///
    /// let ids = Vec::from_iter(0..1000);
    /// let mut computed = 0;
    /// for rank in 0..3 {
    ///     let warming = squares.warming().rank(Rank::new(rank, 3)?);
    ///     computed += warming.run_sharded(&ids, |missing| Ok(missing.ids().copied().collect()))?.computed;
    /// }
    /// assert_eq!(computed, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Cached::warm_sharded`].
    ///
    /// # Panics
    ///
    /// As [`Cached::warm_sharded`].
    pub fn run_sharded<'a, I: Id<M::Key> + Sync + 'a>(
        self,
        ids: impl Into<Sequence<'a, I>>,
        load: impl Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
    ) -> Result<ShardReport>
    where
        M::Input: Send,
    {
        self.check()?;
        let Self { view, workers, stop, sharing } = self;
        let (cached, view) = (view.cached(), view.number());
        let mut ids: Sequence<'a, I> = ids.into();
        cached.writable()?;
        let in_module = |error: Error| error.in_module(M::ID);
        let rank = sharing.rank.map_or_else(Rank::from_env, Ok).map_err(in_module)?;
        let range_size = sharing.range_size(ids.len()).map_err(in_module)?;
        let filler = Filler { cached, view, workers, stop: &stop, load };
        let before = cached.rows().stats().rows_not_kept();
        let _instead = cached.computing.behind_bar();
        let rows = cached.rows().for_call();
        let samples = ids.len().and_then(|len| usize::try_from(len / rank.world()).ok()).unwrap_or_default();
        let mut progress = Progress::new(&rows, Bar::new(M::ID, samples, cached.shared().shown()));
        let done = fill_shard(&filler, &mut ids, rank, range_size, &mut progress);
        // Whatever stopped it, what is finished stays.
        let flushed = progress.flush(cached);
        let not_kept = cached.rows().stats().rows_not_kept().saturating_sub(before);
        let (asked, stopped) = done?;
        flushed?;
        Ok(ShardReport { rank, asked, computed: progress.computed as u64, not_kept, stopped })
    }
}

/// Computes every range of a rank; returns how many ids they have, and whether it was stopped.
fn fill_shard<M: CachedModule, L, I: Id<M::Key> + Sync>(
    filler: &Filler<'_, M, L>,
    ids: &mut Sequence<'_, I>,
    rank: Rank,
    range_size: u64,
    progress: &mut Progress<'_>,
) -> Result<(u64, bool)>
where
    M::Input: Send,
    L: Fn(Missing<'_, I>) -> Result<M::Input> + Sync,
{
    let (mut asked, mut range) = (0, rank.rank());
    loop {
        let start = range.saturating_mul(range_size);
        let first = usize::try_from(start).map_err(|_| Error::batch("there are more ids than positions"))?;
        let own = ids.read(start, range_size)?;
        let count = own.len() as u64;
        if count > 0 && filler.fill(own, first, progress, || false)? == Filled::Stopped {
            return Ok((asked, true));
        }
        asked += count;
        if count < range_size {
            return Ok((asked, false));
        }
        range = range.saturating_add(rank.world());
    }
}
