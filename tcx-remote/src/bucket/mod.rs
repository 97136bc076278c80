//! The objects under one prefix of a store.

mod create;
mod list;
mod read;
mod write;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::sync::Semaphore;

use crate::client::connect::{Store, connect};
use crate::client::error::Failure;
use crate::client::requests::{Counters, Requests};
use crate::client::retry::Deadline;
use crate::client::runtime::{PerProcess, block_on};
use crate::error::invalid;
use crate::options::ClientOptions;
use crate::url::StoreUrl;

pub use create::Created;

/// The objects under one prefix of a store. Every method waits for the store, within the deadline of the
/// [options](ClientOptions::deadline), in synchronous code and inside any runtime. Clones share their connections and counters.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>, Duration);

struct Inner {
    url: StoreUrl,
    options: ClientOptions,
    counters: Arc<Counters>,
    client: PerProcess<Client>,
    connect: Box<Connect>,
}

/// How a process reaches the store.
type Connect = dyn Fn(&StoreUrl, &ClientOptions, &Arc<Counters>) -> io::Result<Arc<dyn Store>> + Send + Sync;

/// What a process has of it.
#[derive(Clone)]
struct Client {
    store: Arc<dyn Store>,
    /// Of requests in flight.
    permits: Arc<Semaphore>,
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name in the folder that was listed.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the clock of the store.
    pub modified: SystemTime,
    /// By which the store distinguishes it from others that had its name, if it does.
    pub tag: Option<String>,
}

impl Bucket {
    /// Makes no request: whether the store can be reached, the first one shows.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is not known or is missing.
    pub fn new(url: StoreUrl, options: ClientOptions) -> io::Result<Self> {
        let bucket = Self::over(url, options, connect);
        bucket.client()?;
        Ok(bucket)
    }

    /// As [`new`](Self::new), over a store that is reached in this way.
    pub(crate) fn over(
        url: StoreUrl,
        options: ClientOptions,
        connect: impl Fn(&StoreUrl, &ClientOptions, &Arc<Counters>) -> io::Result<Arc<dyn Store>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (deadline, counters, client) = (options.deadline, Arc::default(), PerProcess::new());
        Self(Arc::new(Inner { url, options, counters, client, connect: Box::new(connect) }), deadline)
    }

    /// The same one, whose calls take at most this time with all their retries.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self(self.0.clone(), deadline)
    }

    /// The longest time that a call may take, but for a second for each MiB that it transfers.
    pub fn deadline(&self) -> Duration {
        self.1
    }

    /// Where it is.
    pub fn url(&self) -> &StoreUrl {
        &self.0.url
    }

    /// What was asked of the store since this was made.
    pub fn requests(&self) -> Requests {
        self.0.counters.read()
    }

    fn client(&self) -> io::Result<Client> {
        let Inner { url, options, counters, client, connect } = &*self.0;
        let made = client.get(|| {
            let permits = Arc::new(Semaphore::new(options.parallel));
            Ok(Client { store: connect(url, options, counters)?, permits })
        })?;
        Ok(Client::clone(&made))
    }

    /// # Errors
    ///
    /// Returns an error if no object of tcx has such a name: it could leave the prefix.
    fn key(&self, name: &str) -> io::Result<Path> {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !name.split('/').all(is_plain) {
            return Err(invalid(format!("{name:?} is not the name of an object")));
        }
        Path::parse(self.0.url.key(name))
            .map_err(|_| invalid(format!("{name:?} is not the name of an object")))
    }

    /// Does what `action` says to the object or folder `name`, which transfers `bytes` bytes, and waits for it.
    fn call<T, F>(
        &self,
        action: &str,
        name: &str,
        bytes: u64,
        task: impl FnOnce(Client, Deadline) -> F + Send + 'static,
    ) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (client, deadline) = (self.client()?, self.1);
        let place = self.0.url.show(name);
        let action = action.to_owned();
        block_on(async move {
            // The time begins with the first request, not while the thread waits for its runtime.
            let done = task(client, Deadline::new(deadline, bytes)).await;
            done.map_err(|failure| failure.into_error(&action, &place))
        })
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.0.url).finish()
    }
}

impl Client {
    /// One request, when there is room for it.
    async fn request<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        request.await
    }
}

impl Object {
    fn of(meta: ObjectMeta, name: String) -> Self {
        Self { name, bytes: meta.size, modified: meta.last_modified.into(), tag: meta.e_tag }
    }
}
