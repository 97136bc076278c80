//! The threads that do the requests of this process.
//!
//! Connections are shared by all callers, whatever runtime they are in: a pool of connections that is used from several runtimes of one
//! thread each hangs whenever the runtime that opened a connection does not run. A child of `fork` has none of these threads and gets
//! others at its first request.

use std::future::Future;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use arc_swap::ArcSwapOption;
use tcx_store::Process;
use tokio::runtime::{Builder, Handle, Runtime};

#[cfg(test)]
use crate::testing::runtime as simulated;

/// A value that each process makes for itself at its first use. A child of `fork` neither uses nor drops that of its parent: another
/// thread may have been changing it at the fork.
#[derive(Debug)]
pub(crate) struct PerProcess<T>(ArcSwapOption<Own<T>>);

/// What one process has.
#[derive(Debug)]
pub(crate) struct Own<T> {
    process: Process,
    /// Always there, but for the moment in which it is dropped.
    value: Option<T>,
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only dropping takes the value")
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.value.take());
        }
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// The value of this process. Of two threads that make one at once, both get the first.
    pub(crate) fn get(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<Arc<Own<T>>> {
        let found = self.0.load_full();
        if let Some(own) = found.as_ref().filter(|found| found.process.is_current()) {
            return Ok(own.clone());
        }
        let own = Arc::new(Own { process: Process::current(), value: Some(make()?) });
        let before = self.0.compare_and_swap(&found, Some(own.clone()));
        match before.as_ref().filter(|before| before.process.is_current()) {
            Some(first) => Ok(first.clone()),
            None => Ok(own),
        }
    }
}

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// Two threads: what they do is wait.
const THREADS: usize = 2;

fn handle() -> io::Result<Handle> {
    let runtime = RUNTIME.get(|| {
        Builder::new_multi_thread().worker_threads(THREADS).thread_name("tcx-remote").enable_all().build()
    })?;
    Ok(runtime.handle().clone())
}

/// Does something on these threads and waits for it, in synchronous code and inside any runtime.
pub(crate) fn block_on<T: Send + 'static>(
    task: impl Future<Output = io::Result<T>> + Send + 'static,
) -> io::Result<T> {
    #[cfg(test)]
    let task = match simulated::block_on(task) {
        Ok(done) => return done,
        Err(task) => task,
    };
    let (done, result) = sync_channel(1);
    handle()?.spawn(async move {
        // The caller waits until this is dropped.
        let _ = done.send(task.await);
    });
    result.recv().unwrap_or_else(|_| Err(io::Error::other("a request to the store has panicked")))
}
