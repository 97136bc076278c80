//! Which samples are being loaded or computed in this process, so that others wait for them instead of loading them too.
//!
//! A request claims all samples that it is going to load, or none: if another one has some of them, it waits for that one with
//! empty hands, looks again which are missing, and tries again. So requests cannot wait for each other, except by way of their
//! loaders, which may make requests while samples are claimed: a wait that would close a circle is refused, and the request
//! loads these samples itself. It waits for each sample once. If the sample is still missing then, because it could not be
//! loaded or stored there, it loads it itself, even if others do so too.

mod flight;
mod request;

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use self::flight::{End, Flight};
use self::request::Waiting;
pub(crate) use self::request::{Entered, Request, computes};
use crate::cache::alone::{Alone, Refused};

/// How long a request waits for another one. That may never end: its loader waits for this one by way of a thread that it has
/// started, or of a lock of the program, or it is a future that nothing polls.
const PATIENCE: Duration = Duration::from_mins(1);

/// The samples of a module that are being loaded or computed, by their [digest](tcx_store::Keys::digest). Two samples of one
/// digest are waited for in vain and then loaded.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    held: Alone<HashMap<u64, Arc<Flight>>>,
    /// The requests that tasks wait for, and until when. A thread goes through them as long as there are any.
    waited_for: Alone<VecDeque<(Instant, Arc<Flight>)>>,
}

/// Samples that one request has claimed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    flight: Arc<Flight>,
    samples: Vec<u64>,
}

/// What came of claiming samples.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// They are claimed, but for those that others have and that are not waited for.
    All(Claim),
    /// Another request has some of them: to be waited for.
    Held(Wait),
}

/// Another request has samples.
#[derive(Debug)]
pub(crate) struct Wait {
    claims: Arc<Claims>,
    flight: Arc<Flight>,
    samples: Vec<u64>,
    _waiting: Waiting,
}

/// A request, and what it does not wait for.
#[derive(Debug)]
pub(crate) struct Claimant {
    request: Arc<Request>,
    is_async: bool,
    has_waited: bool,
    /// Samples that it has waited for, or must not wait for.
    not_waited_for: HashSet<u64>,
}

impl Claimant {
    /// A call that may block its thread.
    pub(crate) fn blocking() -> Self {
        Self {
            request: Request::current(),
            is_async: false,
            has_waited: false,
            not_waited_for: HashSet::new(),
        }
    }

    /// A future that must not block its thread.
    pub(crate) fn asynchronous() -> Self {
        Self { is_async: true, ..Self::blocking() }
    }

    /// Whether it has waited, so that samples may be there that were missing.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Claims these samples, unless there is another request to wait for first.
    ///
    /// # Errors
    ///
    /// The claims of the process that this one was forked from.
    pub(crate) fn claim(&mut self, claims: &Arc<Claims>, samples: &[u64]) -> Result<Claimed, Refused> {
        let mut held = claims.held.lock()?;
        let waits = |own: &Self, sample: &u64| !own.not_waited_for.contains(sample);
        while let Some(flight) =
            samples.iter().filter(|sample| waits(self, sample)).find_map(|sample| held.get(sample))
        {
            let is_of_flight =
                |sample: &&u64| held.get(sample).is_some_and(|other| Arc::ptr_eq(other, flight));
            let samples = samples.iter().filter(is_of_flight).copied().collect();
            if let Some(waiting) = self.wait_for(flight) {
                let (claims, flight) = (claims.clone(), flight.clone());
                return Ok(Claimed::Held(Wait { claims, flight, samples, _waiting: waiting }));
            }
            self.not_waited_for.extend(samples);
        }
        let flight = Arc::new(Flight::new(self.request.clone(), self.is_async));
        Ok(Claimed::All(Claim::of_free(claims, &mut held, flight, samples)))
    }

    /// Begins to wait for another request, if nothing waits for this one in turn.
    fn wait_for(&self, flight: &Flight) -> Option<Waiting> {
        // A future needs the threads of its runtime to go on: they are not to be blocked until it has.
        let would_block_it = flight.is_async && !self.is_async && Handle::try_current().is_ok();
        if computes() || would_block_it { None } else { self.request.wait_for(&flight.request) }
    }

    /// Waits for the other request.
    pub(crate) fn wait(&mut self, wait: Wait) {
        self.wait_within(wait, PATIENCE);
    }

    fn wait_within(&mut self, wait: Wait, limit: Duration) {
        let end = wait.flight.wait(limit);
        self.waited(wait, end, limit);
    }

    /// As [`wait`](Self::wait), in a task.
    pub(crate) async fn wait_async(&mut self, wait: Wait) {
        self.wait_async_within(wait, PATIENCE).await;
    }

    async fn wait_async_within(&mut self, wait: Wait, limit: Duration) {
        wait.claims.watch(&wait.flight, limit);
        let end = wait.flight.ended().await;
        self.waited(wait, end, limit);
    }

    fn waited(&mut self, wait: Wait, end: Option<End>, limit: Duration) {
        self.has_waited = true;
        if end.is_none() {
            let (samples, seconds) = (wait.samples.len(), limit.as_secs());
            tracing::warn!(
                samples,
                "waited {seconds} s for another request that loads the same samples: they are loaded a second time; \
                 a loader that waits for its own samples in another thread looks like this, and a future that is not polled"
            );
        }
        if end != Some(End::Abandoned) {
            self.not_waited_for.extend(wait.samples);
        }
    }
}

impl Claims {
    /// Claims those of the samples that no other request has, to compute them at once.
    ///
    /// # Errors
    ///
    /// The claims of the process that this one was forked from.
    pub(crate) fn claim_free(self: &Arc<Self>, samples: &[u64]) -> Result<Claim, Refused> {
        let flight = Arc::new(Flight::new(Request::current(), false));
        Ok(Claim::of_free(self, &mut *self.held.lock()?, flight, samples))
    }

    /// Sees to it that tasks give up waiting after `limit`. Done by a thread: a runtime may have no clock.
    fn watch(self: &Arc<Self>, flight: &Arc<Flight>, limit: Duration) {
        let Some(until) = Instant::now().checked_add(limit).filter(|_| flight.is_first_wait()) else {
            return;
        };
        let Ok(mut waited_for) = self.waited_for.lock() else { return };
        waited_for.push_back((until, flight.clone()));
        if waited_for.len() == 1 {
            let claims = self.clone();
            let started =
                thread::Builder::new().name("tcx-patience".to_owned()).spawn(move || claims.watch_all());
            if started.is_err() {
                // The next one tries again. These tasks wait until the other request ends, as it nearly always does.
                waited_for.clear();
            }
        }
    }

    fn watch_all(&self) {
        let next = || Some(self.waited_for.lock().ok()?.front()?.clone());
        while let Some((until, flight)) = next() {
            if flight.wait(until.saturating_duration_since(Instant::now())).is_none() {
                flight.give_up();
            }
            if let Ok(mut waited_for) = self.waited_for.lock() {
                waited_for.pop_front();
                if waited_for.is_empty() {
                    // The next one starts another thread.
                    return;
                }
            }
        }
    }
}

impl Claim {
    fn of_free(
        claims: &Arc<Claims>,
        held: &mut HashMap<u64, Arc<Flight>>,
        flight: Arc<Flight>,
        samples: &[u64],
    ) -> Self {
        let mut own = Vec::with_capacity(samples.len());
        for &sample in samples {
            held.entry(sample).or_insert_with(|| {
                own.push(sample);
                flight.clone()
            });
        }
        Self { claims: claims.clone(), flight, samples: own }
    }

    /// From now on, its end is an answer: what is left runs to its end.
    pub(crate) fn answers(&self) {
        self.flight.set_answer(true);
    }
}

/// Awaits `work` of a request with this claim. If the future is dropped before it is done, another request takes over; if it
/// panics, that is an answer.
pub(crate) async fn during<T>(
    request: &Arc<Request>,
    claim: Option<&Claim>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let done = poll_fn(|context| {
        let _entered = request.enter();
        let set_answer = |is_answer| claim.into_iter().for_each(|claim| claim.flight.set_answer(is_answer));
        set_answer(true);
        let polled = work.as_mut().poll(context);
        set_answer(polled.is_ready());
        polled
    });
    done.await
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In a forked process nothing is freed: a thread of the parent may have been changing it at the fork.
        let Ok(mut held) = self.claims.held.lock() else {
            mem::forget((self.claims.clone(), self.flight.clone()));
            return;
        };
        for sample in &self.samples {
            held.remove(sample);
        }
        drop(held);
        self.flight.end();
    }
}

#[cfg(test)]
mod tests;
