//! The error of a loader that failed for some samples: which ones, and the inputs of the others.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Error, ErrorKind, Message};

/// The most samples that a message names.
const NAMED: usize = 10;

/// Samples that a loader could not load, and the inputs of the others. A mutex, because inputs may not be `Sync`.
pub(super) struct Unloaded {
    pub(super) failures: Vec<LoadFailure>,
    others: Mutex<Option<Box<dyn Any + Send>>>,
    offer: Offer,
}

/// Whether the call that has asked a loader has dealt with its error. Places and inputs are of that call: a loader that makes the call
/// and returns its error has other samples and other inputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    /// The error comes from the caller's own code, and was not passed on by a call of tcx.
    Open,
    /// The samples have their names.
    Named,
    /// Code that is no loader has returned it: its places are those of no ids.
    Foreign,
}

/// A sample that a loader could not load, or whose value the table [rejects](crate::TableBuilder::validate): see
/// [`Error::load_failures`].
///
/// ```
/// # use tcx::{Extractor, LoadFailure, cached_module};
/// # #[cached_module(id = "failures_v1", key = i64)]
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
/// let parse = |missing: tcx::Missing<'_, i64>| {
///     tcx::Partial::collect(missing.ids().map(|id| if *id > 1 { "not a number" } else { "1" }.parse::<i64>()))
/// };
/// let error = squares.fetch(&[1, 2], parse).unwrap_err();
/// let [failure]: &[LoadFailure] = error.load_failures() else { unreachable!() };
/// assert_eq!(failure.id(), "2");
/// assert!(failure.error().is::<std::num::ParseIntError>());
/// assert_eq!(failure.to_string(), "`2`: invalid digit found in string");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LoadFailure {
    place: usize,
    id: Box<str>,
    pub(super) error: Arc<dyn StdError + Send + Sync>,
}

impl LoadFailure {
    /// Its id, as text.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Why it could not be loaded.
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.error
    }

    /// Its place among the samples that the loader was asked for.
    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With its causes: the message of an error of tcx does not repeat them.
        write!(f, "`{}`: {:#}", self.id, self.error)
    }
}

impl fmt::Debug for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Error {
    /// The samples that a loader could not load, if it has said so with a [`Partial`](crate::Partial). The others of its batch
    /// were computed. Of a table, also the ids whose values [`validate`](crate::TableBuilder::validate) rejects.
    pub fn load_failures(&self) -> &[LoadFailure] {
        match &self.0.unloaded {
            Some(unloaded) if unloaded.offer != Offer::Foreign => &unloaded.failures,
            _ => &[],
        }
    }

    /// The cause, if it is that of a sample.
    pub(super) fn first_failure(&self) -> Option<&(dyn StdError + 'static)> {
        let first = self.0.unloaded.as_ref()?.failures.first()?;
        Some(&*first.error)
    }

    /// Some samples could not be loaded, by their places among those asked for; `others` are the inputs of the others.
    pub(crate) fn unloaded(
        failed: Vec<(usize, Box<dyn StdError + Send + Sync>)>,
        others: impl Any + Send,
    ) -> Self {
        let failure = |(place, error): (usize, Box<dyn StdError + Send + Sync>)| LoadFailure {
            place,
            id: format!("sample {place}").into(),
            error: error.into(),
        };
        let failures: Vec<_> = failed.into_iter().map(failure).collect();
        let mut error =
            Self::new(ErrorKind::Loader, format!("loading the inputs of {} samples failed", failures.len()));
        let others = Mutex::new(Some(Box::new(others) as Box<dyn Any + Send>));
        error.0.unloaded = Some(Unloaded { failures, others, offer: Offer::Open });
        error
    }

    /// Whether it is from the loader itself, and not from a call that the loader has made.
    pub(crate) fn is_partial(&self) -> bool {
        self.0.unloaded.as_ref().is_some_and(|unloaded| unloaded.offer == Offer::Open)
    }

    /// An error that leaves a call of tcx offers no inputs to the loader that has made the call. Returns whether it had any to offer.
    pub(super) fn end_partial(&mut self) -> bool {
        let Some(unloaded) = self.0.unloaded.as_mut().filter(|unloaded| unloaded.offer == Offer::Open) else {
            return false;
        };
        (unloaded.offer, unloaded.others) = (Offer::Foreign, Mutex::default());
        true
    }

    /// The inputs of the samples that could be loaded, once.
    pub(crate) fn take_loaded<B: 'static>(&mut self) -> Option<B> {
        let others = self.0.unloaded.as_mut()?.others.get_mut().unwrap_or_else(PoisonError::into_inner);
        others.take()?.downcast().ok().map(|others| *others)
    }

    /// Names the samples that failed, and what failed: `action`. `asked` is the number of all samples that were asked for. The inputs
    /// of the others are of no more use.
    pub(crate) fn naming(
        mut self,
        action: &str,
        asked: usize,
        id: impl Fn(usize) -> String,
        remedy: &str,
    ) -> Self {
        let Some(unloaded) = self.0.unloaded.as_mut().filter(|unloaded| unloaded.offer == Offer::Open) else {
            return self;
        };
        (unloaded.offer, unloaded.others) = (Offer::Named, Mutex::default());
        for failure in &mut unloaded.failures {
            failure.id = id(failure.place).into();
        }
        let failed = unloaded.failures.len();
        let named: Vec<_> =
            unloaded.failures.iter().take(NAMED).map(|failure| format!("`{}`", failure.id)).collect();
        let more = if failed > NAMED { format!(" and {} more", failed - NAMED) } else { String::new() };
        let message = format!("{action} of {failed} of {asked} samples failed: {}{more}", named.join(", "));
        self.0.message = Message::Text(message.into());
        self.with_remedy(remedy)
    }
}
