//! The simulator's side of [`client::runtime`](crate::client::runtime): a simulated process makes its requests on its own thread, in its
//! own time.

use std::cell::Cell;
use std::future::Future;

use tcx_store::testing::simulation::pass;
use tcx_store::unstable::runtime::is_simulated;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

thread_local! {
    /// Making one takes longer than most requests.
    static RUNTIME: Cell<Option<Runtime>> = const { Cell::new(None) };
}

/// Does something on this thread, if it is one of a simulation: pauses take no time here, and as long as they are there. Gives it back
/// otherwise.
pub(crate) fn block_on<T, F: Future<Output = T>>(task: F) -> Result<T, F> {
    if !is_simulated() {
        return Err(task);
    }
    let make = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let own = RUNTIME.take().unwrap_or_else(make);
    let (done, took) = own.block_on(async {
        let start = Instant::now();
        let done = task.await;
        (done, start.elapsed())
    });
    // The thread of a process that has died in the middle makes another one.
    RUNTIME.set(Some(own));
    pass(took);
    Ok(done)
}
