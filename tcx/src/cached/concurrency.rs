//! How many batches are computed at once.

use crate::cached::Cached;
use crate::cached::turns::Turns;
use crate::diagnostics::Concurrent;
use crate::module::extractor::CachedModule;
use crate::{Error, ErrorKind, Result};

/// More threads than any machine computes with: a number above it is a mistake.
const MOST: usize = 1024;

impl<M: CachedModule> Cached<M> {
    /// How many batches are computed at once (1), each by a thread that uses this handle. The outputs are the same, and each sample is
    /// computed once. A `forward` that misses samples which another thread computes first computes the rest of its batch, and then waits
    /// for these; a `fetch` waits for the requests that have some of its samples before it loads any; `warm` does such batches last. If
    /// the other thread fails or panics, one of the threads that wait computes the samples.
    ///
    /// ```
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "at_once_v1", key = i64)]
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
    /// let squares = cache.module(Squares {})?.concurrency(2)?;
    /// let ids: Vec<i64> = (0..1000).collect();
    /// std::thread::scope(|scope| {
    ///     // The two share the work.
    ///     for _ in 0..2 {
    ///         scope.spawn(|| squares.warm(&ids, |missing| Ok(missing.ids().copied().collect())));
    ///     }
    /// });
    /// assert_eq!(squares.stats().rows_computed, 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It takes threads that ask at the same time: calls of `forward`, `fetch` or `warm`, the threads of an
    /// [`epoch`](Self::epoch), tasks. Each call of `warm` computes one batch at a time. It helps if one batch leaves cores or a device
    /// idle. A library that uses all cores for each batch, as candle and ONNX Runtime do by default, needs fewer threads of its own
    /// then.
    ///
    /// - Batches are checked one after the other, and no other batch is finished while one is checked. A check of one of the first
    ///   batches computes samples again, and so does [`CacheBuilder::recheck`](crate::CacheBuilder::recheck): with `recheck(1.)`, the
    ///   work is almost one batch after the other.
    /// - Handles that store nothing ([`Mode::ReadOnly`](crate::Mode::ReadOnly), [`Mode::Off`](crate::Mode::Off), a full folder) share
    ///   nothing: each thread computes what it asks for.
    /// - Each handle has a setting of its own.
    ///
    /// The module has to be `Sync`. Networks of candle and ONNX Runtime, arrays of ndarray and plain values are; a network of ONNX
    /// Runtime computes as many batches at once as it has sessions (`OnnxOptions::sessions`). Tensors and networks of tch are not, so
    /// modules that hold them do not compile with this setting.
    ///
    /// # Errors
    ///
    /// Returns an error if the number is 0 or greater than 1024, and in a process that was forked after the module was opened.
    pub fn concurrency(mut self, batches: usize) -> Result<Self>
    where
        M: Concurrent,
    {
        if !(1..=MOST).contains(&batches) {
            let expected = format!("a number from 1 to {MOST}");
            let error = Error::new(
                ErrorKind::InvalidSettings,
                format!("`concurrency`: expected {expected}, found {batches}"),
            );
            let error = error.in_module(M::ID).with_expected(expected, batches.to_string());
            return Err(
                error.with_remedy("pass the number of batches to compute at once: at most one for each core")
            );
        }
        self.holder.lock().map_err(|refused| self.refused(refused))?.share();
        self.turns = Turns::new(batches);
        Ok(self)
    }
}
