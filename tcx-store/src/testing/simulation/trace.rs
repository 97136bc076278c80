//! What has happened, if the test keeps a trace.

use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Trace(Option<Mutex<Vec<String>>>);

impl Trace {
    pub(super) fn new(wanted: bool) -> Self {
        Self(wanted.then(Mutex::default))
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        if let Some(lines) = &self.0 {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(what());
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.0.as_ref().map_or(Vec::new(), |lines| lines.lock().unwrap().clone())
    }
}
