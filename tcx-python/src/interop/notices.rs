//! What the engine has to report, such as a damaged file, for the logger `tcx_cache` of Python.
//!
//! The engine reports on any thread, and with locks held: a thread that asked for the GIL there might wait for one that waits for these
//! locks. So notices wait until a call of Python ends, or Python does.

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use tcx_store::Trouble;

/// Notices that wait at most: a program that computes for days may not call tcx.
const MOST: usize = 64;

/// A notice of this process, or of the one that it was forked from.
#[derive(Clone, Debug)]
struct Notice {
    process: u32,
    trouble: Trouble,
    message: Arc<str>,
}

/// Swapped without a lock: a lock that another thread holds at a `fork` stays locked in the child.
static WAITING: ArcSwapOption<Vec<Notice>> = ArcSwapOption::const_empty();
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Has the notices of the engine reported by Python.
pub(crate) fn listen() {
    tcx_store::notices_to(keep);
}

fn keep(trouble: Trouble, message: &str) {
    if trouble == Trouble::Full {
        // Python code raises an exception, or warns once for each module.
        return;
    }
    if HAS_ENDED.load(Ordering::Relaxed) {
        write(trouble, message);
        return;
    }
    let notice = Notice { process: std::process::id(), trouble, message: message.into() };
    WAITING.rcu(|waiting| {
        let kept = waiting.iter().flat_map(|own| own.iter()).take(MOST - 1);
        Some(Arc::new(kept.cloned().chain([notice.clone()]).collect::<Vec<_>>()))
    });
}

/// After the end of Python there is no logger: the first notice of each kind is written to stderr.
fn write(trouble: Trouble, message: &str) {
    static WRITTEN: Mutex<Option<HashSet<u8>>> = Mutex::new(None);
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if written.get_or_insert_default().insert(trouble as u8) {
        // Where stderr is closed, nothing can be reported.
        let _ = std::io::stderr().write_all(format!("tcx: {message}\n").as_bytes());
    }
}

/// Reports what waits. It does not fail: the call that it follows has done its work.
pub(crate) fn report(py: Python<'_>) {
    if WAITING.load().is_none() {
        return;
    }
    let Some(waiting) = WAITING.swap(None) else { return };
    // A child of `fork` has those of its parent, which reports them itself.
    let process = std::process::id();
    let mut is_interrupted = false;
    for Notice { trouble, message, .. } in waiting.iter().filter(|own| own.process == process) {
        let reported = py
            .import("tcx_cache.runtime.notices")
            .and_then(|own| own.call_method1("report", (format!("{trouble:?}"), &**message)));
        if let Err(error) = reported {
            // Ctrl-C is no failure of the handler, which it has stopped.
            let is_ctrl_c = error.is_instance_of::<PyKeyboardInterrupt>(py);
            is_interrupted |= is_ctrl_c;
            if !is_ctrl_c {
                // The interpreter ends, or a handler of the program has failed.
                error.write_unraisable(py, None);
            }
            write(*trouble, message);
        }
    }
    if is_interrupted {
        // This raises nothing itself: the next line of the program in Python is where Ctrl-C comes again.
        let _ = py.import("_thread").and_then(|own| own.call_method0("interrupt_main"));
    }
}

/// Reports what waits; Python ends.
pub(crate) fn end(py: Python<'_>) {
    report(py);
    HAS_ENDED.store(true, Ordering::Relaxed);
}
