//! The turnstile: of all simulated threads one runs at a time, from one storage call to another, as the driver says.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::chance::Chance;

/// What a thread is about to do where it has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// `list`, `stamp`, `map`, `draft`, `publish`, `create`, `remove`; `lock` where it waits for another thread.
    pub(super) what: &'static str,
    pub(super) file: String,
}

/// Where a thread stops the next time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// At the storage call after so many.
    Calls(usize),
    /// Before the next call of this kind on a file whose name begins so.
    At(&'static str, &'static str),
    Done,
}

/// What goes wrong with a storage call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not happen.
    Refused(io::ErrorKind),
    /// It happens, and the answer is an error.
    LostReply,
    /// The listing or stamp is that of so many events ago.
    Stale(usize),
    /// The file is not found yet, unless this process has found it before.
    Late,
    /// A name that was added lately by another process and begins so is missing from the listing.
    Gap(&'static str),
}

/// The time of a simulation, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    pub(super) fn millis(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }

    pub(super) fn wall(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1 << 30) + Duration::from_millis(millis)
    }
}

type Task = Box<dyn FnOnce() + Send>;

enum Order {
    Start(Task, Until),
    Go(Until, Option<Fault>),
    Crash,
}

enum Report {
    Paused(Call),
    Done,
    Crashed,
    Panicked(String),
}

/// What a thread unwinds with when its process dies.
struct Crashed;

/// The thread's side of the turnstile.
struct Gate {
    orders: Receiver<Order>,
    reports: Sender<Report>,
    until: Cell<Until>,
    chance: RefCell<Chance>,
    clock: Arc<Clock>,
    /// Nothing is stale for the operation that runs.
    fresh: Cell<bool>,
    crashed: Cell<bool>,
}

thread_local! {
    static GATE: RefCell<Option<Rc<Gate>>> = const { RefCell::new(None) };
}

fn gate() -> Option<Rc<Gate>> {
    GATE.with_borrow(Clone::clone)
}

/// Whether this is a thread of a simulation: what is worth it in large numbers only is worth it there in small ones.
pub(crate) fn is_simulated() -> bool {
    gate().is_some()
}

/// The time of the simulation, on its threads.
pub(crate) fn now() -> Option<Instant> {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    gate().map(|gate| *START + Duration::from_millis(gate.clock.millis()))
}

/// As [`now`], since 1970.
pub(crate) fn wall() -> Option<SystemTime> {
    gate().map(|gate| Clock::wall(gate.clock.millis()))
}

/// Random bits of the seed, on the threads of a simulation.
pub(crate) fn random() -> Option<[u8; 16]> {
    let gate = gate()?;
    let mut chance = gate.chance.borrow_mut();
    let bits = u128::from(chance.next()) << 64 | u128::from(chance.next());
    Some(bits.to_le_bytes())
}

/// Lets other threads go on while this one is `blocked`.
pub(crate) fn wait_while(blocked: impl Fn() -> bool) {
    let Some(gate) = gate() else { return };
    while blocked() && !gate.crashed.get() {
        gate.pause(Call { what: "lock", file: String::new() });
    }
}

/// A storage call is about to happen: tells what the driver wants to go wrong with it.
///
/// # Errors
///
/// The process has died: what its destructors try does not happen.
pub(super) fn step(what: &'static str, file: &str) -> io::Result<Option<Fault>> {
    let gate = gate().expect("storage in memory is used by simulated threads");
    gate.step(Call { what, file: file.to_owned() })
}

/// Draws something on this thread.
pub(super) fn draw<T>(from: impl FnOnce(&mut Chance) -> T) -> T {
    from(&mut gate().expect("a simulated thread").chance.borrow_mut())
}

/// Nothing is stale while this runs.
pub(super) fn fresh<T>(run: impl FnOnce() -> T) -> T {
    let gate = gate().expect("a simulated thread");
    gate.fresh.set(true);
    let done = run();
    gate.fresh.set(false);
    done
}

pub(super) fn is_fresh() -> bool {
    gate().is_some_and(|gate| gate.fresh.get())
}

impl Gate {
    fn step(&self, call: Call) -> io::Result<Option<Fault>> {
        if self.crashed.get() {
            return Err(io::Error::other("the process has died"));
        }
        self.clock.advance(self.pace());
        let stop = match self.until.get() {
            Until::Calls(0) => true,
            Until::Calls(calls) => {
                self.until.set(Until::Calls(calls - 1));
                false
            }
            Until::At(what, file) => call.what == what && call.file.starts_with(file),
            Until::Done => false,
        };
        Ok(if stop { self.pause(call) } else { None })
    }

    /// How long a call takes: mostly milliseconds, at times long enough for what waits for a time.
    fn pace(&self) -> u64 {
        let mut chance = self.chance.borrow_mut();
        match chance.below(100) {
            0 => 40_000,
            1..10 => 700 + chance.below(2000) as u64,
            10..30 => 20 + chance.below(150) as u64,
            _ => chance.below(3) as u64,
        }
    }

    fn pause(&self, call: Call) -> Option<Fault> {
        // Nobody listens when a test has failed already.
        let _ = self.reports.send(Report::Paused(call));
        if let Ok(Order::Go(until, fault)) = self.orders.recv() {
            self.until.set(until);
            return fault;
        }
        self.crashed.set(true);
        resume_unwind(Box::new(Crashed))
    }

    fn run(&self, task: Task, until: Until) -> Report {
        self.until.set(until);
        self.crashed.set(false);
        self.fresh.set(false);
        match catch_unwind(AssertUnwindSafe(task)) {
            Ok(()) => Report::Done,
            Err(payload) if payload.is::<Crashed>() => Report::Crashed,
            Err(payload) => Report::Panicked(message(&*payload)),
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The driver's side: a simulated thread.
pub(super) struct Actor {
    orders: Option<Sender<Order>>,
    reports: Receiver<Report>,
    thread: Option<JoinHandle<()>>,
    /// Where it has stopped within an operation.
    paused: Option<Call>,
}

/// So long a thread may run without a storage call before it counts as hanging.
const HANGS: Duration = Duration::from_mins(2);

impl Actor {
    pub(super) fn new(chance: Chance, clock: Arc<Clock>) -> Self {
        let (orders, received) = channel();
        let (sent, reports) = channel();
        let run = move || {
            let gate = Rc::new(Gate {
                orders: received,
                reports: sent,
                until: Cell::new(Until::Done),
                chance: RefCell::new(chance),
                clock,
                fresh: Cell::new(false),
                crashed: Cell::new(false),
            });
            GATE.set(Some(gate.clone()));
            while let Ok(order) = gate.orders.recv() {
                if let Order::Start(task, until) = order {
                    let _ = gate.reports.send(gate.run(task, until));
                }
            }
        };
        let thread = thread::Builder::new().name("simulated".to_owned()).spawn(run).unwrap();
        Self { orders: Some(orders), reports, thread: Some(thread), paused: None }
    }

    /// Where it has stopped within an operation; `None` if it has nothing to do.
    pub(super) fn paused(&self) -> Option<&Call> {
        self.paused.as_ref()
    }

    /// Starts an operation.
    pub(super) fn start(&mut self, task: impl FnOnce() + Send + 'static, until: Until) {
        assert!(self.paused.is_none(), "one operation at a time");
        self.order(Order::Start(Box::new(task), until));
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
        self.paused = match self.reports.recv_timeout(HANGS).expect("the thread stops at its next call") {
            Report::Paused(call) => Some(call),
            Report::Done | Report::Crashed => None,
            Report::Panicked(message) => panic!("a simulated process panicked: {message}"),
        };
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
