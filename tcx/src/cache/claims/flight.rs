//! Samples that one request is loading and computing, and waiting for the end of it, in threads and in tasks.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::request::Request;

/// The samples that a request has claimed together.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(super) request: Arc<Request>,
    /// It needs threads of a tokio runtime to end.
    pub(super) is_async: bool,
    /// Whether its end is an answer: the samples were computed, or cannot be by this request. Not so if its future is dropped.
    is_answer: AtomicBool,
    is_waited_for: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    end: Option<End>,
    /// Whether tasks have waited long enough.
    is_overdue: bool,
    wakers: Vec<Waker>,
}

/// How a flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With rows or an error.
    Answered,
    /// Its future was dropped: another request takes over.
    Abandoned,
}

impl Flight {
    pub(super) fn new(request: Arc<Request>, is_async: bool) -> Self {
        let is_answer = AtomicBool::new(!is_async);
        let (is_waited_for, state) = (AtomicBool::new(false), Mutex::default());
        Self { request, is_async, is_answer, is_waited_for, state, ended: Condvar::new() }
    }

    /// Whether it is an answer if it ends now.
    pub(super) fn set_answer(&self, is_answer: bool) {
        self.is_answer.store(is_answer, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        let is_answer = self.is_answer.load(Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.end = Some(if is_answer { End::Answered } else { End::Abandoned });
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.ended.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How it ended, if it does within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Option<End> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(state, limit, |state| state.end.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.end
    }

    /// How it ended, unless it was [given up](Self::give_up).
    pub(super) async fn ended(&self) -> Option<End> {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.end.is_some() || state.is_overdue {
                return Poll::Ready(state.end);
            }
            // A task that moved has a new waker; the old ones wake it for nothing.
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Whether this is asked for the first time: the first task that waits sees to it that none waits forever.
    pub(super) fn is_first_wait(&self) -> bool {
        !self.is_waited_for.swap(true, Ordering::Relaxed)
    }

    /// From now on no task waits for it.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_overdue = true;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
