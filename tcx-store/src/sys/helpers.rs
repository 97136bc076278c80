//! Threads that help another one for a moment.
//!
//! They end with the work, so a process that forks in between leaves nothing behind in its child but the stacks of threads that do not
//! exist there.

use std::num::NonZeroUsize;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

/// Calls `work` on this thread and on at most `helpers` others, and returns when all calls have. The system may refuse a thread: then
/// fewer do the work, so each call has to take what is left of it.
pub(crate) fn with_helpers(name: &str, helpers: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..helpers {
            if thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// The processors that threads of this process can run on.
pub(crate) fn processors() -> usize {
    // Asking takes as long as copying some rows.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// Takes the next item, which no other thread gets.
pub(crate) fn take<I: Iterator>(items: &Mutex<I>) -> Option<I::Item> {
    items.lock().unwrap_or_else(PoisonError::into_inner).next()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_work_is_done_by_the_calling_thread_and_its_helpers() {
        for helpers in [0, 3] {
            let threads = Mutex::new(HashSet::new());
            with_helpers("tcx-help", helpers, || {
                assert!(threads.lock().unwrap().insert(thread::current().id()));
            });
            let threads = threads.into_inner().unwrap();
            assert!(threads.len() == helpers + 1 && threads.contains(&thread::current().id()));
        }
    }
}
