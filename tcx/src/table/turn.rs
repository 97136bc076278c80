//! Tasks that compute with one table, one after the other.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whose turn it is. The other tasks wait without a thread: those of the runtime are not many, and what has its turn may need one.
#[derive(Debug, Default)]
pub(super) struct Turn {
    is_taken: AtomicBool,
    ended: Notify,
}

/// The turn of one task, which ends with this.
#[derive(Debug)]
pub(super) struct Taken(Arc<Turn>);

impl Turn {
    /// Waits for a turn. It is given to no task that waits, but taken by one that is polled: a future that nothing polls holds up no other.
    pub(super) async fn take(self: &Arc<Self>) -> Taken {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Before it is looked at: a turn that ends in between wakes this task.
            ended.as_mut().enable();
            if !self.is_taken.swap(true, Ordering::AcqRel) {
                return Taken(self.clone());
            }
            ended.await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.ended.notify_waiters();
    }
}
