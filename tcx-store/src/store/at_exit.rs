//! Writing what is buffered when the program ends with handles that are never dropped: those in a `static`, leaked ones, those
//! of a `main` that `std::process::exit` left. It is a net, not a promise: only `flush` confirms that rows are durable.
//!
//! The system calls back when `main` has returned or `exit` was called, before it unloads libraries and while other threads still
//! run, the writers among them. Handlers run in the reverse order of their registration, so libraries that were loaded before the
//! first store was opened are as they were; the writers need none of them. What ends a process without `exit` (a signal, an abort)
//! calls nothing.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::engine::threads::is_writer_thread;
use crate::store::{open_stores, wait_for_closing_stores};
use crate::sys::notice::{Trouble, notice};
use crate::sys::runtime::spawn;
use crate::write::lost_rows;

/// How long the end of a process is held up at most: a disk may hang, and a writer may have been stopped in the middle of anything.
const LONGEST: Duration = Duration::from_secs(30);

/// The process that opened a store last. A child of `fork` has the handler of its parent, but not its writers.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has the open stores flushed when the process ends.
pub(crate) fn flush_at_exit() {
    // No lock: one that is held at a `fork` stays locked in the child.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        register();
    }
}

fn register() {
    extern "C" fn ends() {
        // An unwinding panic must not leave a function that the system has called.
        let _ = catch_unwind(flush_open_stores);
    }
    #[expect(unsafe_code, reason = "the system calls back")]
    // SAFETY: `ends` has the signature that the function asks for and never unwinds. It lives as long as this code: where this is in a
    // library that is unloaded (`dlclose`), the handler is called then and never again. Handlers run as any other code does, outside of
    // signals, so `ends` may allocate, lock and start threads.
    let failed = unsafe { libc::atexit(ends) };
    if failed != 0 {
        tracing::warn!(
            "cannot register an exit handler: call `flush` before the process ends, or rows of handles that are never dropped are lost"
        );
    }
}

fn flush_open_stores() {
    // A writer that ends the process cannot be waited for.
    if PROCESS.load(Ordering::Relaxed) != std::process::id() || is_writer_thread() {
        return;
    }
    let (done, flushed) = channel();
    // On a thread of its own: the thread-local values of this one may be gone, and waiting has to have an end.
    let flush = move || {
        let stores = open_stores();
        for store in &stores {
            if let Err(error) = store.flush_at_exit_for(&store.losses) {
                let lost = lost_rows(&store.core);
                tracing::error!("{lost}: {error:#}");
                notice(
                    Trouble::Lost,
                    format_args!("{lost}: {error:#}; call `flush` before the end to get this error"),
                );
            }
            store.end_session();
        }
        // To drop the last handle would be to wait for the writer once more.
        std::mem::forget(stores);
        wait_for_closing_stores();
        let _ = done.send(());
    };
    if spawn("tcx-exit", flush).is_ok() && flushed.recv_timeout(LONGEST).is_err() {
        let lost = format!(
            "rows may be lost: the process ends before the writers have finished (waited {LONGEST:?}); call `flush` or `close` before the end"
        );
        tracing::error!("{lost}");
        notice(Trouble::Lost, lost);
    }
}
