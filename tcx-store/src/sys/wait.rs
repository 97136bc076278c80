//! Waiting for a future on the calling thread, inside a runtime or outside.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake};

use super::runtime;

/// Where one thread waits to be woken. Not the thread's own parking: that has one permit for all who use it, and a thread that waits
/// with it may take one that the program meant for something else.
#[derive(Default)]
struct Waiting {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Waiting {
    fn wait(&self) {
        let mut is_woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_woken {
            is_woken = self.woken.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_woken = false;
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }
}

/// Blocks the thread until the future is ready. Tokio's own blocking calls panic inside a runtime.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    // Inside a runtime, a future that has used up its share is woken when the runtime has its turn again: never, as long as
    // this thread waits here.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waiting = Arc::new(Waiting::default());
    let waker = waiting.clone().into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A simulated thread lets others go on.
            Poll::Pending if runtime::wait_once() => {}
            Poll::Pending => waiting.wait(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_unpark_that_came_before_a_wait_is_still_there_after_it() {
        let (done, ended) = mpsc::channel();
        thread::spawn(move || {
            thread::current().unpark();
            let (sender, received) = tokio::sync::oneshot::channel();
            let late = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                sender.send(7)
            });
            assert_eq!(wait(received), Ok(7));
            late.join().unwrap().unwrap();
            thread::park();
            done.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(30)).expect("the thread parks for ever");
    }

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
