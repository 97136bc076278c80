//! A bounded queue of jobs, whose results come in order.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A result, or what the work has panicked with.
type Done<T> = Result<T, Box<dyn Any + Send>>;

/// Jobs that were pushed and whose results were not popped.
#[derive(Debug)]
pub(crate) struct Queue<J, T> {
    most_jobs: usize,
    most_rows: usize,
    state: Mutex<State<J, T>>,
    /// There is a job, or the queue was closed.
    job: Condvar,
    /// There is a result.
    result: Condvar,
}

#[derive(Debug)]
struct State<J, T> {
    jobs: VecDeque<(u64, J)>,
    done: BTreeMap<u64, Done<T>>,
    /// The rows of each job that is under way, in order.
    rows: VecDeque<usize>,
    pushed: u64,
    popped: u64,
    is_closed: bool,
}

impl<J, T> Queue<J, T> {
    /// Room for this number of jobs and rows; one job finds room in any case.
    pub(crate) fn new(most_jobs: usize, most_rows: usize) -> Self {
        let state = State {
            jobs: VecDeque::new(),
            done: BTreeMap::new(),
            rows: VecDeque::new(),
            pushed: 0,
            popped: 0,
            is_closed: false,
        };
        let (job, result) = (Condvar::new(), Condvar::new());
        Self { most_jobs, most_rows, state: Mutex::new(state), job, result }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().rows.is_empty()
    }

    /// Whether there is room for one more job.
    pub(crate) fn has_room(&self) -> bool {
        let rows = &self.lock().rows;
        rows.is_empty() || rows.len() < self.most_jobs && rows.iter().sum::<usize>() < self.most_rows
    }

    /// One more job, of this many rows.
    pub(crate) fn push(&self, job: J, rows: usize) {
        let mut state = self.lock();
        let number = state.pushed;
        state.pushed += 1;
        state.rows.push_back(rows);
        state.jobs.push_back((number, job));
        drop(state);
        self.job.notify_one();
    }

    /// The result of the oldest job, once it is done; `None` if nothing is under way.
    ///
    /// # Panics
    ///
    /// As the work on it.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        let number = state.popped;
        if state.rows.is_empty() {
            return None;
        }
        let done = loop {
            match state.done.remove(&number) {
                Some(done) => break done,
                None => state = self.result.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.popped += 1;
        state.rows.pop_front();
        drop(state);
        Some(done.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    /// Does the work of this thread until the queue is closed.
    pub(crate) fn work(&self, work: impl Fn(J) -> T) {
        while let Some((number, job)) = self.next_job() {
            let done = catch_unwind(AssertUnwindSafe(|| work(job)));
            self.lock().done.insert(number, done);
            self.result.notify_one();
        }
    }

    fn next_job(&self) -> Option<(u64, J)> {
        let state = self.lock();
        let waits = |state: &mut State<J, T>| state.jobs.is_empty() && !state.is_closed;
        let mut state = self.job.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        if state.is_closed { None } else { state.jobs.pop_front() }
    }

    /// Ends the threads; jobs that have not begun are dropped.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let dropped = std::mem::take(&mut state.jobs);
        drop(state);
        self.job.notify_all();
        drop(dropped);
    }

    /// [Closes](Self::close) the queue when the value is dropped.
    pub(crate) fn close_on_drop(&self) -> impl Drop + '_ {
        CloseOnDrop(self)
    }

    fn lock(&self) -> MutexGuard<'_, State<J, T>> {
        // Nothing that can panic is done with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CloseOnDrop<'a, J, T>(&'a Queue<J, T>);

impl<J, T> Drop for CloseOnDrop<'_, J, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
