//! Tables whose handles Python has dropped.
//!
//! The last handle of a table waits until the writer has written its rows, and the writer asks Python whether weights are unchanged, for
//! which it takes a lock. The garbage collector may drop a handle at any line of a thread, also at one that holds this lock. So a thread
//! of its own waits for the writer, and the thread that drops the handle waits for that one, but not for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;

use crate::interop::notices;
use crate::store::mode::Opened;

/// How long a thread waits for a table that it has dropped: rows that wait are mostly written by then.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a wait sleeps before it looks again.
const PAUSE: Duration = Duration::from_millis(1);

/// A table that is being dropped by a thread of this process.
struct Dropping {
    process: u32,
    is_done: AtomicBool,
}

impl Dropping {
    fn is_awaited(&self) -> bool {
        // A child of `fork` has none of the threads of its parent.
        self.process == std::process::id() && !self.is_done.load(Ordering::Acquire)
    }
}

/// Marks a table as dropped, also if its thread panics or was never started.
struct Done {
    dropping: Arc<Dropping>,
    waits: Thread,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.dropping.is_done.store(true, Ordering::Release);
        self.waits.unpark();
    }
}

/// Swapped without a lock: a lock that another thread holds at a `fork` stays locked in the child.
static DROPPING: ArcSwapOption<Vec<Arc<Dropping>>> = ArcSwapOption::const_empty();

/// Lets go of a table, whose rows are written mostly when this returns, and when Python ends in any case.
pub(crate) fn let_go(opened: Arc<Opened>) {
    let is_of_parent = opened.store().is_some_and(|store| store.is_inherited());
    if is_of_parent || !opened.writes() {
        // No writer asks anything.
        drop_without_gil(move || drop(opened));
        return;
    }
    let dropping = Arc::new(Dropping { process: std::process::id(), is_done: AtomicBool::new(false) });
    let (listed, done) = (dropping.clone(), Done { dropping: dropping.clone(), waits: thread::current() });
    DROPPING.rcu(|others| {
        let others = others.iter().flat_map(|own| own.iter()).filter(|own| own.is_awaited());
        Some(Arc::new(others.cloned().chain([listed.clone()]).collect::<Vec<_>>()))
    });
    drop_without_gil(move || {
        // Where no thread can be started, what it would have is dropped here.
        let _ = thread::Builder::new().name("tcx-drop".to_owned()).spawn(move || {
            drop(opened);
            drop(done);
        });
        let deadline = Instant::now() + PATIENCE;
        // It may be woken by something else.
        while dropping.is_awaited() && Instant::now() < deadline {
            thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    });
}

/// The writer may need the GIL. Where Python has ended, it is not available.
fn drop_without_gil(run: impl FnOnce() + Send) {
    let mut run = Some(run);
    let mut once = || run.take().into_iter().for_each(|run| run());
    // The second call does nothing if the first one came to run it.
    let _ = Python::try_attach(|py| py.detach(&mut once));
    once();
}

/// Waits for the tables that this process has dropped, and reports what waits; Python ends. Ctrl-C ends the wait.
#[pyfunction]
pub(crate) fn end_notices(py: Python<'_>) -> PyResult<()> {
    let waited = wait_for_dropped(py);
    notices::end(py);
    waited
}

/// Waits until all tables that this process has dropped are written.
///
/// # Errors
///
/// Returns the exception of a signal, such as that of Ctrl-C, which ends the wait.
#[pyfunction]
pub(crate) fn wait_for_dropped(py: Python<'_>) -> PyResult<()> {
    while DROPPING.load().iter().any(|own| own.iter().any(|own| own.is_awaited())) {
        py.detach(|| thread::sleep(PAUSE));
        py.check_signals()?;
    }
    Ok(())
}
