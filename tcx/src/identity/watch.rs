//! The weights of a module, watched: they must stay what they were when they were frozen.
//!
//! Three looks, from cheap to thorough. Before and after each forward pass: libtorch's version counter, the place and the form of
//! each tensor, and a sample of its memory. Before rows become durable: a checksum of all memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tcx_store::Attestation;

use crate::tensor::{State, Watched, WatchedMemory};
use crate::{Error, ErrorKind, Result};

/// The cache lines that a sample reads of all weights of one network together: 64 KiB.
const LINES: usize = 1024;

/// The tensors of another device of which each forward pass reads a sample: each takes a few kernel launches.
const PER_FORWARD: usize = 4;

/// A frozen tensor under its name.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) name: String,
    /// A tensor need not be `Sync`: so one thread at a time looks at it.
    tensor: Mutex<Box<dyn Watched>>,
}

impl Weight {
    pub(crate) fn new(name: String, tensor: Box<dyn Watched>) -> Self {
        Self { name, tensor: Mutex::new(tensor) }
    }

    /// The tensor, for this thread. To look at it changes nothing, so that a panic leaves nothing half-done behind.
    pub(crate) fn tensor(&self) -> MutexGuard<'_, Box<dyn Watched>> {
        self.tensor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of cache lines in the sample of each weight, in a network that has this many.
    pub(crate) fn lines(of: usize) -> usize {
        (LINES / of.max(1)).max(2)
    }

    /// The same weight under another name.
    pub(crate) fn named(&self, name: String) -> Self {
        Self::new(name, self.tensor().share())
    }

    /// What is wrong with it, as far as its version and its form show.
    fn check(&self) -> Result<Option<Violation>> {
        Ok(match self.tensor().state()? {
            State::Same => None,
            State::Changed => Some(changed),
            State::Replaced => Some(replaced),
        })
    }

    fn check_gradients(&self) -> Result<()> {
        if self.tensor().tracks_gradients() {
            let error = violation(&self.name, "tracks gradients again after it was frozen");
            return Err(error.with_remedy("do not set its `requires_grad`"));
        }
        Ok(())
    }

    /// What is wrong with it, as far as a sample shows.
    fn check_sample(&self) -> Result<Option<Violation>> {
        Ok((!self.tensor().has_same_sample()?).then_some(changed))
    }
}

/// The memory of all weights of a module, for the thread that writes rows.
pub(crate) struct Memories {
    /// A tensor need not be `Sync`.
    weights: Mutex<Vec<(String, Box<dyn WatchedMemory>)>>,
    verdict: Arc<Verdict>,
}

/// What is known of weights, also once they are gone.
#[derive(Debug)]
pub(crate) struct Verdict {
    module: &'static str,
    changed: Arc<Change>,
    /// Whether outputs of the module are inputs of others.
    is_followed: AtomicBool,
    /// Set once the weights are gone.
    ended: OnceLock<()>,
}

impl Verdict {
    /// Whether no change was found so far.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first weight that was found to have changed.
    pub(crate) fn check_known(&self) -> Result<()> {
        check_known(&self.changed).map_err(|error| error.in_module(self.module))
    }

    /// Outputs of the module are inputs of others from now on: the weights are checked again before they go.
    pub(crate) fn follow(&self) {
        self.is_followed.store(true, Ordering::SeqCst);
    }

    /// As [`check_known`](Self::check_known), of weights that are gone or go in this moment.
    ///
    /// # Errors
    ///
    /// As [`check_known`](Self::check_known).
    pub(crate) fn check_ended(&self) -> Result<()> {
        self.ended.wait();
        self.check_known()
    }

    /// Whether the weights are gone, and had not changed.
    pub(crate) fn is_settled(&self) -> bool {
        self.ended.get().is_some() && self.changed.get().is_none()
    }
}

/// The first weight found to have changed, and what is said of it. A change that any look has found stays: rows that were computed
/// meanwhile may still wait when the weight is restored.
type Change = OnceLock<(String, Violation)>;

/// What is said of a weight of this name.
type Violation = fn(&str) -> Error;

impl Memories {
    /// Whether no change was found so far.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first weight that was found to have changed.
    pub(crate) fn check_known(&self) -> Result<()> {
        self.verdict.check_known()
    }

    pub(crate) fn verdict(&self) -> &Arc<Verdict> {
        &self.verdict
    }

    /// Whether all memory is what it was.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first weight that changed. This holds even if it has been restored, because rows that
    /// were computed in between may still exist.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_known()?;
        for (name, memory) in &*self.weights.lock().unwrap_or_else(PoisonError::into_inner) {
            if !memory.is_same().map_err(|error| error.in_module(self.verdict.module))? {
                self.verdict.changed.get_or_init(|| (name.clone(), changed));
                return self.check_known();
            }
        }
        Ok(())
    }
}

impl Drop for Memories {
    fn drop(&mut self) {
        // Also if a look panics: others wait for it.
        let _ended = Ended(self.verdict.clone());
        if self.verdict.is_followed.load(Ordering::SeqCst) {
            let checked = catch_unwind(AssertUnwindSafe(|| self.check()));
            // The verdict keeps a change that was found. Of what could not be looked at, nothing is known.
            if !matches!(checked, Ok(Ok(()))) {
                self.verdict.changed.get_or_init(|| (String::new(), unread));
            }
        }
    }
}

/// Says that the weights are gone when it is dropped.
struct Ended(Arc<Verdict>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.ended.set(());
    }
}

/// The weights of a module, which must not change any more.
#[derive(Debug, Default)]
pub(crate) struct WeightWatch {
    weights: Vec<Weight>,
    /// The weight on another device whose sample is read next.
    next: AtomicUsize,
    changed: Arc<Change>,
    /// What is asked before rows become durable, and what it has found.
    attested: OnceLock<(Arc<Attestation>, Arc<Memories>)>,
}

impl WeightWatch {
    pub(crate) fn add(&mut self, weight: Weight) {
        self.weights.push(weight);
    }

    /// Whether every weight still is what was fingerprinted, as far as a look at little of it shows.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first weight that was written to in place, has other memory, or tracks gradients again.
    pub(crate) fn check(&self) -> Result<()> {
        check_known(&self.changed)?;
        self.look(&self.weights, Weight::check)?;
        self.weights.iter().try_for_each(Weight::check_gradients)?;
        let here = self.weights.iter().filter(|weight| weight.tensor().is_on_cpu());
        self.look(here, Weight::check_sample)
    }

    /// Looks at each of these weights, and keeps in mind what has changed.
    fn look<'a>(
        &self,
        weights: impl IntoIterator<Item = &'a Weight>,
        look: impl Fn(&Weight) -> Result<Option<Violation>>,
    ) -> Result<()> {
        for weight in weights {
            if let Some(what) = look(weight)? {
                self.changed.get_or_init(|| (weight.name.clone(), what));
                return check_known(&self.changed);
            }
        }
        Ok(())
    }

    /// As [`check`](Self::check), after a forward pass: samples of a few weights on other devices are read too, of others each time. One
    /// that changed before the pass has changed after it, too.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(crate) fn check_after(&self) -> Result<()> {
        self.check()?;
        let elsewhere: Vec<_> = self.weights.iter().filter(|weight| !weight.tensor().is_on_cpu()).collect();
        let first = self.next.fetch_add(PER_FORWARD, Ordering::Relaxed);
        let places =
            (0..PER_FORWARD.min(elsewhere.len())).map(|place| first.wrapping_add(place) % elsewhere.len());
        self.look(places.map(|place| elsewhere[place]), Weight::check_sample)
    }

    /// What the store asks before it makes rows of module `id` durable, and what that looks at; nothing if it has no weights.
    pub(crate) fn attestation(&self, id: &'static str) -> Option<(&Arc<Attestation>, &Arc<Memories>)> {
        if self.weights.is_empty() {
            return None;
        }
        let attest = || {
            let weights =
                self.weights.iter().map(|weight| (weight.name.clone(), weight.tensor().memory())).collect();
            let (changed, is_followed) = (self.changed.clone(), AtomicBool::new(false));
            let verdict = Arc::new(Verdict { module: id, changed, is_followed, ended: OnceLock::new() });
            let memories = Arc::new(Memories { weights: Mutex::new(weights), verdict });
            let asked = memories.clone();
            let ask = move || asked.check().map_err(|error| format!("{error:#}"));
            (Attestation::new(ask), memories)
        };
        let (attestation, memories) = self.attested.get_or_init(attest);
        Some((attestation, memories))
    }
}

impl std::fmt::Debug for Memories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memories").field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

fn check_known(changed: &Change) -> Result<()> {
    changed.get().map_or(Ok(()), |(name, what)| Err(what(name)))
}

const REMEDY: &str = "freeze the module again after the last change, and bump the id";

fn violation(name: &str, message: &str) -> Error {
    Error::new(ErrorKind::ModuleViolation, format!("weight `{name}`: {message}"))
}

fn changed(name: &str) -> Error {
    let message = "changed in place after it was frozen, so that rows computed before and after would differ";
    violation(name, message).with_remedy(REMEDY)
}

/// Of the weights of a network that is gone. Which of them it was may not be known.
fn unread(_: &str) -> Error {
    let message = "the weights of the network could not be read when it was dropped, so that it is not known whether they had changed";
    Error::new(ErrorKind::ModuleViolation, message.to_owned())
        .with_remedy("keep the network as long as rows are computed from its outputs, or compute them again")
}

fn replaced(name: &str) -> Error {
    let message = "was given other memory, another dtype or another shape after it was frozen";
    violation(name, message).with_remedy(REMEDY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A weight of a device that fails.
    #[derive(Debug)]
    struct Failing {
        panics: bool,
    }

    impl WatchedMemory for Failing {
        fn is_same(&self) -> Result<bool> {
            assert!(!self.panics, "the device is gone");
            Err(Error::new(ErrorKind::Io, "the device is gone"))
        }
    }

    #[test]
    fn weights_that_cannot_be_read_when_their_network_goes_are_not_taken_for_the_same() {
        for panics in [false, true] {
            let (changed, is_followed) = (Arc::default(), AtomicBool::new(true));
            let verdict = Arc::new(Verdict { module: "m_v1", changed, is_followed, ended: OnceLock::new() });
            let weights: Vec<(String, Box<dyn WatchedMemory>)> =
                vec![("w".to_owned(), Box::new(Failing { panics }))];
            drop(Memories { weights: Mutex::new(weights), verdict: verdict.clone() });
            let error = verdict.check_ended().unwrap_err().to_string();
            assert!(error.contains("could not be read when it was dropped"), "{error}");
            assert!(!verdict.is_settled());
        }
    }
}
