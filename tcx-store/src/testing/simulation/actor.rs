//! The turnstile, on the side of the driver.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::chance::Chance;
use super::schedule::{self, Call, Clock, Fault, Order, Report, SLEEPS, Started, Task, Until, WAITS};

/// A simulated thread.
pub(super) struct Actor {
    orders: Option<Sender<Order>>,
    reports: Receiver<(Report, Until)>,
    thread: Option<JoinHandle<()>>,
    /// Where it has stopped within an operation.
    paused: Option<Call>,
    /// Where it would have stopped next.
    left: Until,
}

/// So long a thread may run without a storage call before it counts as hanging.
const HANGS: Duration = Duration::from_mins(2);

impl Actor {
    pub(super) fn new(chance: Chance, clock: Arc<Clock>, started: Started) -> Self {
        let (orders, received) = channel();
        let (sent, reports) = channel();
        let run = move || schedule::run(received, sent, chance, clock, started);
        let thread = thread::Builder::new().name("simulated".to_owned()).spawn(run).unwrap();
        Self { orders: Some(orders), reports, thread: Some(thread), paused: None, left: Until::Done }
    }

    /// Where it has stopped within an operation; `None` if it has nothing to do.
    pub(super) fn paused(&self) -> Option<&Call> {
        self.paused.as_ref()
    }

    /// Whether it waits for another thread.
    pub(super) fn waits(&self) -> bool {
        self.paused.as_ref().is_some_and(|call| call.what == WAITS)
    }

    /// Whether it waits for nothing but the time.
    pub(super) fn sleeps(&self) -> bool {
        self.paused.as_ref().is_some_and(|call| call.what == SLEEPS)
    }

    /// Where it would have stopped next.
    pub(super) fn left(&self) -> Until {
        self.left
    }

    /// Starts an operation.
    pub(super) fn start(&mut self, task: Task, until: Until) {
        assert!(self.paused.is_none(), "one operation at a time");
        self.order(Order::Start(task, until));
    }

    /// Goes on with the call it has stopped at.
    pub(super) fn go(&mut self, until: Until, fault: Option<Fault>) {
        assert!(self.paused.is_some(), "there is something to go on with");
        self.order(Order::Go(until, fault));
    }

    /// The thread unwinds out of the call it has stopped at; what it had in memory is gone.
    pub(super) fn crash(&mut self) {
        if self.paused.is_some() {
            self.order(Order::Crash);
            assert!(self.paused.is_none(), "a dead thread does not stop");
        }
    }

    fn order(&mut self, order: Order) {
        self.orders.as_ref().expect("it lives").send(order).expect("the thread listens");
        self.paused = None;
        let (report, left) = self.reports.recv_timeout(HANGS).expect("the thread stops at its next call");
        self.left = left;
        match report {
            Report::Paused(call) => self.paused = Some(call),
            Report::Done | Report::Crashed => {}
            Report::Panicked(message) => panic!("a simulated process panicked: {message}"),
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
