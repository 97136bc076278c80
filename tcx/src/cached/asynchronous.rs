//! Asynchronous methods, on the threads of tokio for blocking work.

use std::future::Future;
use std::sync::Arc;

use tcx_store::Keys;

use crate::Result;
use crate::cache::Cache;
use crate::cache::blocking::blocking;
use crate::cache::claims::{Claim, Claimant, Request, Wait, during};
use crate::cache::gather::Found;
use crate::cache::stop::Stop;
use crate::cached::Cached;
use crate::cached::loading::Loads;
use crate::cached::warm::WarmReport;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::missing::Missing;

/// What is missing of the rows of a request, and its claim to load it.
struct ToLoad {
    rows: Found,
    claim: Option<Claim>,
    request: Arc<Request>,
}

impl ToLoad {
    /// It has its inputs, or begins to load them in a thread: it goes on to its end.
    fn answers(&self) {
        if let Some(claim) = &self.claim {
            claim.answers();
        }
    }
}

/// What a request has come to.
enum Sought<O> {
    Found(O),
    Missing(Box<ToLoad>),
}

enum Step<O> {
    Sought(Sought<O>),
    /// For another request.
    Wait(Box<(Found, Wait, Claimant)>),
}

/// Stops work when its future is dropped.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The asynchronous methods, for any tokio runtime. Nothing begins before the future is polled. One of the runtime's threads
/// for blocking work then does the work, so no other task waits for it.
///
/// Dropping a future cancels work that has not begun. Work that has begun runs to its end in the background, but
/// [`warm_async`](Self::warm_async) stops after the current batch, and [`fetch_async`](Self::fetch_async) drops its loader.
/// Computed rows are kept in any case. A panic of the module or of `load` continues in the task that awaits the future.
///
/// Requests wait for each other as those of [`fetch`](Self::fetch) do, and block no thread. A blocking
/// request within a runtime does not wait for an asynchronous one, which may need its thread. It loads the samples itself.
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
        async move {
            let keys = own.pack(&ids, 0)?;
            let sought = match own.seek(keys).await? {
                Sought::Found(output) => return Ok(output),
                Sought::Missing(missing) => missing,
            };
            let request = sought.request.clone();
            blocking(&request, move || {
                sought.answers();
                let asked = sought.rows.distinct_missing_positions();
                let loaded = load(Missing::new(&ids, &asked));
                own.completed(sought, &asked, loaded)
            })
            .await
        }
    }

    /// As [`fetch`](Self::fetch), with a loader that is asynchronous itself: for inputs from a network. The loader runs in the
    /// task that awaits this; everything else on a thread for blocking work.
    ///
    /// A future that is dropped while it loads gives its samples back: a request that waits for them loads them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "fetched_async_v1")]
    /// # struct Words {}
    /// # impl Extractor for Words {
    /// #     type Input = Vec<String>;
    /// #     type Output = Vec<i64>;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
    /// #         Ok(x.iter().map(|text| text.len() as i64).collect())
    /// #     }
    /// # }
    /// # async fn download(key: &str) -> std::io::Result<String> { Ok(format!("the text of {key}")) }
    /// # let dir = tempfile::tempdir()?;
    /// let words = Arc::new(tcx::Cache::open(dir.path())?.module(Words {})?);
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let task = tokio::spawn(async move {
    ///     let load = async |missing: tcx::Missing<'_, String>| {
    ///         let mut texts = Vec::new();
    ///         for key in missing.ids() {
    ///             texts.push(download(key).await?);
    ///         }
    ///         Ok(texts)
    ///     };
    ///     words.fetch_async(&["a".to_owned(), "bb".to_owned()], load).await
    /// });
    /// assert_eq!(task.await??, [13, 14]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`fetch`](Self::fetch). Also returns an error if no tokio runtime is running.
    pub async fn fetch_async<I, L>(self: &Arc<Self>, ids: &[I], load: L) -> Result<<M as Extractor>::Output>
    where
        I: Id<M::Key>,
        L: AsyncFnOnce(Missing<'_, I>) -> Result<M::Input>,
        M::Input: Send + 'static,
        M::Output: Send + 'static,
    {
        let keys = self.pack(ids, 0)?;
        let sought = match self.seek(keys).await? {
            Sought::Found(output) => return Ok(output),
            Sought::Missing(missing) => missing,
        };
        let asked = sought.rows.distinct_missing_positions();
        let loading = load(Missing::new(ids, &asked));
        let loaded = during(&sought.request, sought.claim.as_ref(), loading).await;
        let (own, request) = (self.clone(), sought.request.clone());
        blocking(&request, move || {
            sought.answers();
            own.completed(sought, &asked, loaded)
        })
        .await
    }

    /// The output for these keys, or what of them this request has to load, once no other request loads some of them.
    async fn seek(self: &Arc<Self>, keys: Keys) -> Result<Sought<M::Output>>
    where
        M::Output: Send + 'static,
    {
        let claimant = Claimant::asynchronous();
        let request = claimant.request().clone();
        let own = self.clone();
        let mut step = blocking(&request, move || {
            let rows = own.look_up(keys)?;
            own.step(rows, claimant)
        })
        .await?;
        loop {
            let (rows, wait, mut claimant) = match step {
                Step::Sought(sought) => return Ok(sought),
                Step::Wait(waits) => *waits,
            };
            claimant.wait_async(wait).await;
            let own = self.clone();
            step = blocking(&request, move || own.step(rows, claimant)).await?;
        }
    }

    fn step(&self, mut rows: Found, mut claimant: Claimant) -> Result<Step<M::Output>> {
        Ok(match self.who_loads(&mut rows, &mut claimant)? {
            Loads::None => Step::Sought(Sought::Found(self.output_of(rows)?)),
            Loads::Other(wait) => Step::Wait(Box::new((rows, wait, claimant))),
            Loads::Own(claim) => {
                let request = claimant.request().clone();
                Step::Sought(Sought::Missing(Box::new(ToLoad { rows, claim, request })))
            }
        })
    }

    /// The output, once what is missing of the rows is computed from these inputs.
    fn completed(
        &self,
        to_load: Box<ToLoad>,
        asked: &[usize],
        loaded: Result<M::Input>,
    ) -> Result<M::Output> {
        let ToLoad { mut rows, claim, .. } = *to_load;
        self.complete_loaded(self.rows(), &mut rows, asked, loaded)?;
        drop(claim);
        self.output_of(rows)
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
            let stop = Stop::new();
            let _stop = StopOnDrop(stop.clone());
            blocking(&Request::current(), move || own.warm_view(&ids, 0, load, &stop)).await
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
        async move { blocking(&Request::current(), move || own.prefetch(&ids)).await }
    }

    /// As [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush). Also returns an error if no tokio runtime is running.
    pub fn flush_async(self: &Arc<Self>) -> impl Future<Output = Result<()>> + Send + use<M> {
        let own = self.clone();
        async move { blocking(&Request::current(), move || own.flush()).await }
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
        async move { blocking(&Request::current(), move || own.flush()).await }
    }

    /// As [`close`](Self::close), in any tokio runtime. A future that is dropped cancels a close that has not begun; one that
    /// has begun goes on.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close). Also returns an error if no tokio runtime is running.
    pub async fn close_async(self) -> Result<()> {
        blocking(&Request::current(), move || self.close()).await
    }
}
