//! Processes on one folder, and their threads.

use std::sync::Arc;
use std::time::Duration;

use super::chance::Chance;
use super::memory::{Folder, Weather};
use super::operation::{KEYS, Operation, VIEWS};
use super::process::{Process, World};
use super::schedule::{Actor, Clock, Fault, Until};
use super::trace::Trace;

/// A change as a version to come may write it: it counts as a tombstone for everything before it.
const OF_A_VERSION_TO_COME: &[u8] = b"TCXCHG99";

/// A thread of a process.
struct Thread {
    process: usize,
    /// Whether it writes files: one thread of each process does.
    writes: bool,
    actor: Actor,
}

/// How a simulation is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) processes: usize,
    /// 2 adds a thread to each process that looks up and inserts while the other writes.
    pub(super) threads: usize,
    pub(super) weather: Weather,
    pub(super) refresh_every: Duration,
    /// How coarse the folder's stamps are, in milliseconds.
    pub(super) grain: u64,
    pub(super) traced: bool,
}

pub(super) struct Simulation {
    pub(super) world: Arc<World>,
    processes: Vec<Arc<Process>>,
    threads: Vec<Thread>,
}

impl Simulation {
    pub(super) fn new(setup: &Setup, chance: &mut Chance) -> Self {
        let clock = Arc::new(Clock::default());
        let folder = Arc::new(Folder::new(clock.clone(), setup.grain, Trace::new(setup.traced)));
        let world = Arc::new(World::new(folder));
        let (mut processes, mut threads) = (Vec::new(), Vec::new());
        // One more, which sees everything as it is: the observer.
        for number in 0..=setup.processes {
            let observes = number == setup.processes;
            let weather = if observes { Weather::default() } else { setup.weather };
            let process = Process::new(number, world.clone(), weather, setup.refresh_every);
            processes.push(Arc::new(process));
            for thread in 0..if observes { 1 } else { setup.threads } {
                let actor = Actor::new(chance.fork(), clock.clone());
                threads.push(Thread { process: number, writes: thread == 0, actor });
            }
        }
        Self { world, processes, threads }
    }

    /// The threads but the observer's.
    pub(super) fn threads(&self) -> usize {
        self.threads.len() - 1
    }

    pub(super) fn process(&self, process: usize) -> &Process {
        &self.processes[process]
    }

    /// Whether the thread is in the middle of an operation.
    pub(super) fn is_busy(&self, thread: usize) -> bool {
        self.threads[thread].actor.paused().is_some()
    }

    pub(super) fn process_of(&self, thread: usize) -> usize {
        self.threads[thread].process
    }

    /// Starts what chance has the thread do.
    pub(super) fn start_any(&mut self, thread: usize, chance: &mut Chance, until: Until) {
        let Thread { process, writes, .. } = self.threads[thread];
        let operation = Operation::choose(chance, &self.processes[process], writes);
        if matches!(operation, Operation::Open { .. }) && !writes {
            return;
        }
        self.start(thread, operation, until);
    }

    pub(super) fn start(&mut self, thread: usize, operation: Operation, until: Until) {
        let process = self.processes[self.threads[thread].process].clone();
        self.threads[thread].actor.start(move || operation.run(&process), until);
    }

    pub(super) fn go(&mut self, thread: usize, until: Until, fault: Option<Fault>) {
        self.threads[thread].actor.go(until, fault);
    }

    /// Lets the thread come to the end of its operation.
    pub(super) fn finish(&mut self, thread: usize) {
        for _ in 0..10_000 {
            if !self.is_busy(thread) {
                return;
            }
            self.go(thread, Until::Done, None);
        }
        panic!("thread {thread} waits for a lock that a paused thread holds");
    }

    /// Lets all threads come to the end of their operations.
    pub(super) fn finish_all(&mut self) {
        for _ in 0..10_000 {
            let busy: Vec<usize> = (0..self.threads.len()).filter(|&thread| self.is_busy(thread)).collect();
            if busy.is_empty() {
                return;
            }
            for thread in busy {
                self.go(thread, Until::Done, None);
            }
        }
        panic!("threads wait for each other");
    }

    /// The process dies where its threads have stopped.
    pub(super) fn crash(&mut self, process: usize) {
        self.world.note(|| format!("process {process} dies"));
        for thread in self.threads.iter_mut().filter(|thread| thread.process == process) {
            thread.actor.crash();
        }
        self.processes[process].crashed();
    }

    /// All processes die, and what is not durable may be gone.
    pub(super) fn lose_power(&mut self, chance: &mut Chance) {
        (0..self.processes.len()).for_each(|process| self.crash(process));
        self.world.note(|| "power is lost".to_owned());
        self.world.folder.lose_power(chance);
    }

    /// Somebody removes the folder under living processes.
    pub(super) fn remove_folder(&self) {
        self.world.note(|| "the folder is removed".to_owned());
        self.world.folder.remove_all();
        self.world.oracle().removed();
    }

    /// A program of a version to come invalidates everything.
    pub(super) fn invalidate_all(&self) {
        let changes = self.world.folder.names("change-");
        let name = |number: usize| format!("change-{number:020}");
        let free = (0..=changes.len()).find(|number| !changes.contains(&name(*number)));
        let Some(number @ 1..) = free else { return };
        self.world.note(|| format!("change {number} of a version to come"));
        let mut oracle = self.world.oracle();
        let invalidation = oracle.invalidate(None, super::history::Matcher::All);
        self.world.folder.put(&name(number), OF_A_VERSION_TO_COME);
        oracle.invalidated(invalidation);
    }

    /// What a process that opens the folder now finds: everything that was acknowledged, and nothing dead. Once
    /// more without the index runs, which can be made again.
    pub(super) fn observe(&mut self) {
        let (thread, process) = (self.threads.len() - 1, self.processes.len() - 1);
        for with_runs in [true, false] {
            let runs = self.world.folder.names("run-");
            runs.iter().filter(|_| !with_runs).for_each(|run| self.world.folder.remove_file(run));
            self.run(thread, Operation::Open { fresh: true });
            for view in 0..VIEWS {
                self.run(thread, Operation::Lookup { keys: KEYS.to_vec(), view, replaces: false });
            }
            self.crash(process);
        }
    }

    /// Runs an operation from beginning to end.
    pub(super) fn run(&mut self, thread: usize, operation: Operation) {
        self.start(thread, operation, Until::Done);
        self.finish(thread);
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.world.oracle().violation().map(str::to_owned)
    }
}
