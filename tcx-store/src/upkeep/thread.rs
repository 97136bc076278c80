//! The background thread that joins and removes files. The writer starts it and goes on sealing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::Core;
use crate::engine::threads::{Role, works_for};
use crate::error::Error;
use crate::sys::priority::{self, Background};
use crate::sys::runtime::spawn;
use crate::sys::wait::wait;
use crate::upkeep::tasks::merge_changes;

/// What is due; a later one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Changes were written.
    Changes,
    /// Rows were sealed.
    Tidying,
    /// Rows are sealed all the time, and what is replaced has to go.
    Collection,
    /// Nothing is sealed at the moment.
    Everything,
}

/// Starts the thread when something is due; it ends when nothing is.
pub(crate) struct UpkeepThread {
    core: Arc<Core>,
    gc_grace: Duration,
    due: Option<Due>,
    /// Whether something was left for later; as long as the thread runs.
    running: Option<oneshot::Receiver<bool>>,
    collected: Instant,
}

impl UpkeepThread {
    pub(crate) fn new(core: Arc<Core>, gc_grace: Duration) -> Self {
        Self { core, gc_grace, due: None, running: None, collected: Instant::now() }
    }

    /// Does this once nothing else is being done.
    pub(crate) fn want(&mut self, due: Due) {
        self.due = self.due.max(Some(due));
        self.start();
    }

    /// Rows were sealed: a program that never pauses has its replaced files removed all the same.
    pub(crate) fn want_after_seal(&mut self, pause: Duration) {
        let is_time = self.collected.elapsed() >= self.gc_grace.max(pause);
        self.want(if is_time { Due::Collection } else { Due::Tidying });
    }

    fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(due) = self.due.take() else { return };
        if due >= Due::Collection {
            self.collected = Instant::now();
        }
        let (done, running) = oneshot::channel();
        let (core, gc_grace) = (self.core.clone(), self.gc_grace);
        let started = spawn("tcx-upkeep", move || {
            works_for(&core, Role::KeepsUp);
            priority::lower(core.background_priority.of(Background::Upkeep));
            let is_unfinished = keep_up(&core, due, gc_grace);
            // Before it is reported: a store that is closed keeps no file mapped.
            drop(core);
            // The writer may have panicked.
            let _ = done.send(is_unfinished);
        });
        let path = self.core.storage.path();
        let started = started.map_err(|e| Error::io("cannot start a thread that joins files in", path, e));
        self.running = self.core.failing.note("start a thread", path, started).map(|()| running);
    }

    /// Waits until something was done; returns whether it has left something for later. Forever if nothing is being done.
    pub(crate) async fn done(&mut self) -> bool {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let is_unfinished = running.await.unwrap_or(false);
        self.running = None;
        self.start();
        is_unfinished
    }

    /// Waits until what is being done has come to an end, which it does soon: what is half done is given up.
    pub(crate) fn end(mut self) {
        self.due = None;
        if let Some(running) = self.running.take() {
            self.core.gives_up.store(true, Ordering::Relaxed);
            let _ = wait(running);
            self.core.gives_up.store(false, Ordering::Relaxed);
        }
    }
}

fn keep_up(core: &Core, due: Due, gc_grace: Duration) -> bool {
    match due {
        Due::Changes => merge_changes(core),
        Due::Tidying => core.tidy(),
        Due::Collection => {
            core.tidy();
            core.collect_old(gc_grace);
        }
        Due::Everything => return core.tidy_thoroughly(gc_grace),
    }
    false
}
