//! Asynchronous methods, on the threads of tokio for blocking work.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::cache::Cache;
use crate::cached::Cached;
use crate::cached::warm::WarmReport;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::missing::Missing;
use crate::{Error, ErrorKind, Result};

/// Runs `work` on a thread for blocking work of the runtime that polls this.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(Error::new(ErrorKind::NoRuntime, "there is no tokio runtime here")
            .with_remedy("await it in a tokio runtime, or use the blocking form"));
    };
    let task = runtime.spawn_blocking(work);
    let _unless_begun = CancelOnDrop(task.abort_handle());
    match task.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::new(ErrorKind::NoRuntime, "the tokio runtime is shutting down")
            .with_remedy("start another one")),
    }
}

/// Dropping it cancels work that has not started; work that has started continues.
struct CancelOnDrop(AbortHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stops work when its future is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The asynchronous methods, for any tokio runtime. Nothing begins before the future is polled. One of the runtime's threads
/// for blocking work then does the work, so no other task waits for it.
///
/// Dropping a future cancels work that has not begun. Work that has begun runs to its end in the background, but
/// [`warm_async`](Self::warm_async) stops after the current batch. Computed rows are kept in any case. A panic of the module or
/// of `load` continues in the task that awaits the future.
///
/// ```
/// use std::sync::Arc;
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "async_v1")]
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
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let words = Arc::new(cache.module(Words {})?);
/// # runtime.block_on(async {
/// let load = |missing: tcx::Missing<'_, &str>| Ok(missing.ids().map(|id| id.to_string()).collect());
/// words.warm_async(vec!["a", "bb"], load).await?;
/// assert_eq!(words.fetch_owned(vec!["bb", "ccc"], load).await?, [2, 3]);
/// words.prefetch_async(vec!["a"]).await?; // of the next batch, while this one is used
/// words.flush_async().await?;
/// cache.close_async().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Each of them returns the errors of its blocking form, and an error if no tokio runtime is running.
impl<M: CachedModule + Send + 'static> Cached<M> {
    /// As [`fetch`](Self::fetch), of ids that the future owns.
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch). Also returns an error if no tokio runtime is running.
    pub fn fetch_owned<I, L>(
        self: &Arc<Self>,
        ids: Vec<I>,
        load: L,
    ) -> impl Future<Output = Result<<M as Extractor>::Output>> + Send + use<M, I, L>
    where
        I: Id<M::Key> + Send + 'static,
        L: FnOnce(Missing<'_, I>) -> Result<M::Input> + Send + 'static,
        M::Output: Send + 'static,
    {
        let own = self.clone();
        async move { blocking(move || own.fetch(&ids, load)).await }
    }

    /// As [`warm`](Self::warm). Dropping the future stops it after the current batch; finished rows are made durable.
    ///
    /// # Errors
    ///
    /// As [`warm`](Self::warm). Also returns an error if no tokio runtime is running.
    pub fn warm_async<I, L>(
        self: &Arc<Self>,
        ids: Vec<I>,
        load: L,
    ) -> impl Future<Output = Result<WarmReport>> + Send + use<M, I, L>
    where
        I: Id<M::Key> + Send + 'static,
        L: FnMut(Missing<'_, I>) -> Result<M::Input> + Send + 'static,
    {
        let own = self.clone();
        async move {
            let stopped = Arc::new(AtomicBool::new(false));
            let _stop = StopOnDrop(stopped.clone());
            let goes_on = move || !stopped.load(Ordering::Acquire);
            blocking(move || own.warm_view(&ids, 0, load, goes_on)).await
        }
    }

    /// As [`prefetch`](Self::prefetch).
    ///
    /// # Errors
    ///
    /// As [`prefetch`](Self::prefetch). Also returns an error if no tokio runtime is running.
    pub fn prefetch_async<I>(
        self: &Arc<Self>,
        ids: Vec<I>,
    ) -> impl Future<Output = Result<usize>> + Send + use<M, I>
    where
        I: Id<M::Key> + Send + 'static,
    {
        let own = self.clone();
        async move { blocking(move || own.prefetch(&ids)).await }
    }

    /// As [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). Also returns an error if no tokio runtime is running.
    pub fn flush_async(self: &Arc<Self>) -> impl Future<Output = Result<()>> + Send + use<M> {
        let own = self.clone();
        async move { blocking(move || own.flush()).await }
    }
}

impl Cache {
    /// As [`flush`](Self::flush), in any tokio runtime. A future that is dropped cancels a flush that has not begun; one that
    /// has begun goes on.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). Also returns an error if no tokio runtime is running.
    pub fn flush_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let own = self.clone();
        async move { blocking(move || own.flush()).await }
    }

    /// As [`close`](Self::close), in any tokio runtime. A future that is dropped cancels a close that has not begun; one that
    /// has begun goes on.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close). Also returns an error if no tokio runtime is running.
    pub async fn close_async(self) -> Result<()> {
        blocking(move || self.close()).await
    }
}
