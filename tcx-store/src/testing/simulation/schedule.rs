//! The turnstile, on the side of the simulated threads: one runs at a time, from one storage call to another, as the
//! driver says.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::chance::Chance;

/// What a thread is about to do where it has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// `list`, `stamp`, `map`, `read`, `draft`, `publish`, `create`, `hold`, `remove`, `set aside`, `sync`, `info`, a request to an object
    /// store, or [`WAITS`] or [`SLEEPS`].
    pub(super) what: &'static str,
    pub(super) file: String,
}

/// No call: the thread waits for another.
pub(super) const WAITS: &str = "waits";

/// No call: the thread does nothing until it is time.
pub(super) const SLEEPS: &str = "sleeps";

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

pub(super) type Task = Box<dyn FnOnce() + Send>;

/// What threads are started for.
#[derive(Default)]
pub(super) struct Tasks(Mutex<VecDeque<Task>>);

impl Tasks {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: Task) {
        self.queue().push_back(task);
    }

    pub(super) fn next(&self) -> Option<Task> {
        self.queue().pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }
}

/// What the threads of a process have started threads for.
#[derive(Clone, Default)]
pub(super) struct Started {
    /// One thread does this, one after the other: others wait for it.
    pub(super) tasks: Arc<Tasks>,
    /// No thread waits for this, which may last.
    pub(super) lasting: Arc<Tasks>,
}

pub(super) enum Order {
    Start(Task, Until),
    Go(Until, Option<Fault>),
    Crash,
}

pub(super) enum Report {
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
    /// What has happened, and where the thread would have stopped next.
    reports: Sender<(Report, Until)>,
    started: Started,
    until: Cell<Until>,
    chance: RefCell<Chance>,
    clock: Arc<Clock>,
    /// Nothing is stale for the operation that runs.
    fresh: Cell<bool>,
    crashed: Cell<bool>,
}

thread_local! {
    /// Which of the processes that have forked from each other this thread is a part of.
    static FORKS: Cell<u64> = const { Cell::new(0) };
}

/// How often the simulated process, of which this thread is a part, has forked: only the children go on.
pub(crate) fn forks() -> u64 {
    FORKS.get()
}

/// Runs something as the process that has forked so often.
pub(super) fn in_process<T>(forks: u64, run: impl FnOnce() -> T) -> T {
    struct Before(u64);
    impl Drop for Before {
        fn drop(&mut self) {
            FORKS.set(self.0);
        }
    }
    // A thread that dies unwinds.
    let _before = Before(FORKS.replace(forks));
    run()
}

/// A simulated thread: runs what it is ordered to, until no more orders can come.
pub(super) fn run(
    orders: Receiver<Order>,
    reports: Sender<(Report, Until)>,
    chance: Chance,
    clock: Arc<Clock>,
    started: Started,
) {
    let (until, chance) = (Cell::new(Until::Done), RefCell::new(chance));
    let (fresh, crashed) = (Cell::new(false), Cell::new(false));
    let gate = Rc::new(Gate { orders, reports, started, until, chance, clock, fresh, crashed });
    GATE.set(Some(gate.clone()));
    while let Ok(order) = gate.orders.recv() {
        if let Order::Start(task, until) = order {
            let report = gate.run(task, until);
            let _ = gate.reports.send((report, gate.until.get()));
        }
    }
}

thread_local! {
    static GATE: RefCell<Option<Rc<Gate>>> = const { RefCell::new(None) };
}

fn gate() -> Option<Rc<Gate>> {
    // At the end of a program, which flushes its stores then, the thread has none any more.
    GATE.try_with(|gate| gate.borrow().clone()).ok().flatten()
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
        gate.pause(Call { what: WAITS, file: String::new() });
    }
}

/// Lets other threads go on once; `false` if this is no thread of a simulation.
pub(crate) fn wait_once() -> bool {
    let Some(gate) = gate().filter(|gate| !gate.crashed.get()) else { return false };
    gate.pause(Call { what: WAITS, file: String::new() });
    true
}

/// Has the driver run the task on a thread of the simulation; gives it back if there is none.
pub(crate) fn spawn<T: FnOnce() + Send + 'static>(task: T) -> Option<T> {
    let Some(gate) = gate() else { return Some(task) };
    gate.started.tasks.push(Box::new(task));
    None
}

/// As [`spawn`], for a task that may last.
pub(crate) fn spawn_lasting<T: FnOnce() + Send + 'static>(task: T) -> Option<T> {
    let Some(gate) = gate() else { return Some(task) };
    gate.started.lasting.push(Box::new(task));
    None
}

/// Lets other threads go on until it is time, which comes when the driver has this one go on; `false` if this is no thread of a
/// simulation.
pub(crate) fn sleep(time: Duration) -> bool {
    let Some(gate) = gate() else { return false };
    if !gate.crashed.get() {
        let until = gate.clock.millis() + time.as_millis() as u64;
        gate.pause(Call { what: SLEEPS, file: String::new() });
        gate.clock.advance(until.saturating_sub(gate.clock.millis()));
    }
    true
}

/// So much time has gone by on this thread, for what it has done without a call.
pub fn pass(time: Duration) {
    if let Some(gate) = gate() {
        gate.clock.advance(time.as_millis() as u64);
    }
}

/// A storage call is about to happen: tells what the driver wants to go wrong with it.
///
/// # Errors
///
/// Returns an error if the process has died: actions of its destructors have no effect.
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
        // The receiver is gone when a test has failed already.
        let _ = self.reports.send((Report::Paused(call), self.until.get()));
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
