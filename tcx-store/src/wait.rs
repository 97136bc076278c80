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
    // Inside a runtime, a future that has used up its share is woken when the runtime has its turn again: never, as long as
    // this thread is parked here.
    let mut future = pin!(tokio::task::unconstrained(future));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_inside_a_runtime_ends_however_often_it_is_done() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // More often than the runtime lets a task poll without a pause.
            for number in 0..1000 {
                let (done, received) = tokio::sync::oneshot::channel();
                let sender = thread::spawn(move || {
                    if number % 100 == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    done.send(number)
                });
                assert_eq!(wait(received), Ok(number));
                sender.join().unwrap().unwrap();
            }
        });
    }
}
