//! The objects under one prefix of a store.

mod create;
mod list;
mod parts;
mod read;
mod write;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::client::connect::{Store, connect};
use crate::client::error::Failure;
use crate::client::lanes::Lanes;
use crate::client::requests::{Counters, Requests};
use crate::client::retry::Deadline;
use crate::client::runtime::{PerProcess, block_on};
use crate::error::invalid;
use crate::options::ClientOptions;
use crate::url::StoreUrl;

pub use create::Created;
pub(crate) use write::Removed;

/// The objects under one prefix of a store. Every method waits for the store, within the deadline of the
/// [options](ClientOptions::deadline), in synchronous code and inside any runtime. Clones share their connections and counters.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>, Duration, Urgency);

struct Inner {
    url: StoreUrl,
    options: ClientOptions,
    counters: Arc<Counters>,
    client: PerProcess<Client>,
    connect: Box<Connect>,
}

/// Who waits for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// A caller.
    Now,
    /// No caller: they leave half of the requests in flight to callers.
    Later,
}

/// How a process reaches the store.
type Connect = dyn Fn(&StoreUrl, &ClientOptions, &Arc<Counters>) -> io::Result<Arc<dyn Store>> + Send + Sync;

/// What a process has of it.
#[derive(Clone)]
struct Client {
    store: Arc<dyn Store>,
    /// The largest number of requests in flight.
    parallel: usize,
    /// Of requests in flight, and of those that no caller waits for.
    permits: Arc<Semaphore>,
    later: Arc<Semaphore>,
    /// Of long bodies that are sent.
    lanes: Arc<Lanes>,
    urgency: Urgency,
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
        let inner = Inner { url, options, counters, client, connect: Box::new(connect) };
        Self(Arc::new(inner), deadline, Urgency::Now)
    }

    /// The same one, whose calls take at most this time with all their retries.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self(self.0.clone(), deadline, self.2)
    }

    /// The same one, for calls that no caller waits for.
    #[must_use]
    pub(crate) fn in_background(&self) -> Self {
        Self(self.0.clone(), self.1, Urgency::Later)
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

    /// The largest number of requests in flight.
    fn parallel(&self) -> usize {
        self.0.options.parallel
    }

    fn client(&self) -> io::Result<Client> {
        let Inner { url, options, counters, client, connect } = &*self.0;
        let made = client.get(|| {
            let parallel = options.parallel;
            let permits = Arc::new(Semaphore::new(parallel));
            let later = Arc::new(Semaphore::new((parallel / 2).max(1)));
            let store = connect(url, options, counters)?;
            let lanes = Arc::new(Lanes::new(parallel));
            Ok(Client { store, parallel, permits, later, lanes, urgency: Urgency::Now })
        })?;
        Ok(Client { urgency: self.2, ..Client::clone(&made) })
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
        let (client, longest, speed) = (self.client()?, self.1, self.0.options.pace);
        let place = self.0.url.show(name);
        let action = action.to_owned();
        block_on(async move {
            // The time begins with the first request, not while the thread waits for its runtime.
            let done = task(client, Deadline::new(longest, bytes, speed)).await;
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
    /// One try of a request, when there is room for it. The time until then is not the store's: it must not seem to be away because this
    /// process asks for much.
    async fn attempt<T>(
        &self,
        deadline: &mut Deadline,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Failure> {
        let _permits = self.room(deadline).await;
        deadline.attempt(request).await
    }

    /// Waits until there is room for a request.
    async fn room(&self, deadline: &mut Deadline) -> [Option<SemaphorePermit<'_>>; 2] {
        let start = Instant::now();
        // The semaphores are never closed.
        let of_those = match self.urgency {
            Urgency::Later => self.later.acquire().await.ok(),
            Urgency::Now => None,
        };
        let permit = self.permits.acquire().await.ok();
        deadline.extend(start.elapsed());
        [of_those, permit]
    }

    /// Tries until something else than a failure that may pass comes of it.
    async fn attempts<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        deadline: &mut Deadline,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        let mut own = *deadline;
        let done = loop {
            match self.attempt(&mut own, request()).await {
                Err(failure) if failure.is_transient && own.pause().await => {}
                done => break done,
            }
        };
        // The next request of the call has as much time.
        deadline.extend_as(own);
        done
    }
}

impl Object {
    fn of(meta: ObjectMeta, name: String) -> Self {
        Self { name, bytes: meta.size, modified: meta.last_modified.into(), tag: meta.e_tag }
    }
}

#[cfg(test)]
mod testing {
    use tcx_test_s3::Server;

    use super::*;
    use crate::options::Pace;
    use crate::url::Location;

    /// A bucket whose bodies are so long, and have so much time.
    pub(super) fn bucket(server: &Server, pace: Pace, deadline: Duration) -> Bucket {
        let Ok(Location::Store(url)) = Location::parse(&server.url("p")) else { panic!("it is a URL") };
        let options = ClientOptions { pace, ..ClientOptions::default().deadline(deadline) };
        let set = |options: ClientOptions, (name, value)| options.set(name, value);
        Bucket::new(url, server.settings().into_iter().fold(options, set)).unwrap()
    }
}
