//! Asynchronous methods, on the threads of tokio for blocking work.

use std::future::Future;
use std::sync::Arc;

use super::Table;
use super::partial::Looked;
use crate::Result;
use crate::cache::blocking::blocking;
use crate::cache::claims::{Claim, Claimant, Claimed};
use crate::ids::{Id, KeyKind};
use crate::module::missing::Missing;
use crate::module::partial::Partial;
use crate::output::CacheableOutput;

impl<T: CacheableOutput + Send + 'static, K: KeyKind> Table<T, K> {
    /// As [`get_or_compute`](Self::get_or_compute), of ids that the future owns, in any tokio runtime: one of its threads for blocking
    /// work looks the values up and calls `compute`, so no other task waits for it. A request that waits for another one, because it has
    /// equal ids or computes with this table, has no thread until then. Nothing begins before the future is polled. Dropping it
    /// cancels work that has not begun; work that has begun runs to its end, and its values are stored.
    ///
    /// In `compute`, `Handle::block_on` waits for a future of the runtime.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// # async fn ask(prompt: &str) -> std::io::Result<String> { Ok(format!("answer to {prompt}")) }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = tcx::Cache::open(dir.path())?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let answers = Arc::new(cache.table::<Vec<String>>("answers_v1")?);
    /// # runtime.block_on(async {
    /// let runtime = tokio::runtime::Handle::current();
    /// let task = tokio::spawn(answers.get_or_compute_async(vec!["a", "b"], move |missing| {
    ///     missing.ids().map(|prompt| Ok(runtime.block_on(ask(prompt))?)).collect()
    /// }));
    /// assert_eq!(task.await??, ["answer to a", "answer to b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`get_or_compute`](Self::get_or_compute). Also returns an error if no tokio runtime is running.
    pub fn get_or_compute_async<I, C>(
        self: &Arc<Self>,
        ids: Vec<I>,
        compute: C,
    ) -> impl Future<Output = Result<T>> + Send + use<T, K, I, C>
    where
        I: Id<K> + Send + 'static,
        C: FnOnce(Missing<'_, I>) -> Result<T> + Send + 'static,
    {
        self.clone().compute_in_task(ids, compute)
    }

    async fn compute_in_task<I, C>(self: Arc<Self>, ids: Vec<I>, compute: C) -> Result<T>
    where
        I: Id<K> + Send + 'static,
        C: FnOnce(Missing<'_, I>) -> Result<T> + Send + 'static,
    {
        let mut claimant = Claimant::asynchronous();
        let request = claimant.request().clone();
        let own = self.clone();
        let looked = blocking(&request, move || {
            let looked = own.look(&ids)?;
            Ok((ids, looked))
        });
        let (ids, rows) = match looked.await? {
            (_, Looked::Found(values)) => return Ok(values),
            (ids, Looked::Missing(rows)) => (ids, rows),
        };
        let samples = self.to_claim(&rows);
        let claim = loop {
            match self.try_claim(&mut claimant, &samples)? {
                None => break None,
                Some(Claimed::All(claim)) => break Some(claim),
                Some(Claimed::Held(wait)) => claimant.wait_async(wait).await,
            }
        };
        let turn = self.turn.take().await;
        let computed = blocking(&request, move || {
            let _until_the_end = (turn, claim.inspect(Claim::answers));
            let rows =
                self.compute_claimed(&ids, *rows, |missing| Ok((compute(missing)?, Partial::new())))?;
            self.values(rows)
        });
        computed.await
    }
}
