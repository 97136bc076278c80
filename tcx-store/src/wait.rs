//! Waiting for a future on the calling thread, inside a runtime or outside.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks the thread until the future is ready. Tokio's own blocking calls panic inside a runtime.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A simulated thread lets others go on.
            #[cfg(test)]
            Poll::Pending if crate::model::wait_once() => {}
            Poll::Pending => thread::park(),
        }
    }
}
