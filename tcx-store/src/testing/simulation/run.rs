//! Processes on one folder, and their threads.

mod users;

use std::sync::Arc;
use std::time::Duration;

use super::actor::Actor;
use super::chance::Chance;
use super::folder::Folder;
use super::history::Matcher;
use super::kept::Kept;
use super::operation::{KEYS, Operation, VIEWS};
use super::process::{Habits, Process, World};
use super::renewals::Judging;
use super::schedule::{Clock, Fault, Started, Tasks, Until, in_process};
use super::site::{Fleet, Site};
use super::trace::Trace;
use super::weather::Weather;
use crate::upkeep::compaction::Effort;

/// So often a machine tries to send what waits: some requests are denied.
const SETTLED_AT_MOST: usize = 8;

/// What a thread of a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Everything; it alone writes files.
    Writes,
    /// Looks up and inserts, while the first is busy.
    Reads,
    /// What the others have started a thread for.
    Helps,
    /// What they have started a thread for that lasts.
    Lasts,
}

struct Thread {
    process: usize,
    role: Role,
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
    pub(super) time_to_live: Option<Duration>,
    pub(super) habits: Habits,
    /// Whether rows have stamps.
    pub(super) stamps: bool,
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
        Self::on(None, setup, chance)
    }

    /// On the machines of a fleet, or on one folder.
    pub(super) fn on(fleet: Option<&Fleet>, setup: &Setup, chance: &mut Chance) -> Self {
        let clock = Arc::new(Clock::default());
        let folder = Arc::new(Folder::new(clock.clone(), setup.grain, Trace::new(setup.traced)));
        let world = Arc::new(World::new(folder));
        world.oracle().time_to_live = setup.time_to_live.map(|time| time.as_millis() as u64);
        let (mut processes, mut threads) = (Vec::new(), Vec::new());
        // One more, which sees everything as it is: the observer.
        for number in 0..=setup.processes {
            let observes = number == setup.processes;
            let weather = if observes { Weather::default() } else { setup.weather };
            let site = Site::new(&world, number, weather, fleet);
            let process = Process::new(number, world.clone(), setup, site);
            processes.push(Arc::new(process));
            let mut roles = vec![Role::Writes, Role::Helps];
            roles.extend((!observes && setup.threads > 1).then_some(Role::Reads));
            roles.extend(fleet.is_some().then_some(Role::Lasts));
            for role in roles {
                let actor = Actor::new(chance.fork(), clock.clone(), processes[number].started.clone());
                threads.push(Thread { process: number, role, actor });
            }
        }
        Self { world, processes, threads }
    }

    /// The threads that have something to do, or may be given something; not the observer's.
    pub(super) fn ready(&self) -> Vec<usize> {
        let is_ready = |thread: &usize| {
            let Thread { process, role, .. } = self.threads[*thread];
            let has_work =
                self.is_busy(*thread) || self.tasks(process, role).is_none_or(|own| !own.is_empty());
            process < self.processes() && has_work
        };
        (0..self.threads.len()).filter(is_ready).collect()
    }

    /// The processes but the observer.
    pub(super) fn processes(&self) -> usize {
        self.processes.len() - 1
    }

    pub(super) fn process(&self, process: usize) -> &Process {
        &self.processes[process]
    }

    pub(super) fn process_of(&self, thread: usize) -> usize {
        self.threads[thread].process
    }

    fn thread(&self, process: usize, role: Role) -> usize {
        let is_it = |thread: &Thread| thread.process == process && thread.role == role;
        self.threads.iter().position(is_it).expect("every process has one")
    }

    /// What threads of this role are started for.
    fn tasks(&self, process: usize, role: Role) -> Option<&Tasks> {
        let Started { tasks, lasting } = &self.processes[process].started;
        match role {
            Role::Writes | Role::Reads => None,
            Role::Helps => Some(tasks),
            Role::Lasts => Some(lasting),
        }
    }

    /// Whether the thread is in the middle of something.
    fn is_busy(&self, thread: usize) -> bool {
        self.threads[thread].actor.paused().is_some()
    }

    /// Whether a thread of the process is in the middle of something.
    pub(super) fn is_paused(&self, process: usize) -> bool {
        (0..self.threads.len()).any(|thread| self.process_of(thread) == process && self.is_busy(thread))
    }

    /// The thread goes on, or starts what chance has it do.
    pub(super) fn advance_any(&mut self, thread: usize, chance: &mut Chance, until: Until) {
        let Thread { process, role, .. } = self.threads[thread];
        if self.is_busy(thread) {
            return self.threads[thread].actor.go(until, None);
        }
        if matches!(role, Role::Helps | Role::Lasts) {
            self.proceed(thread, until);
            return;
        }
        let operation = Operation::choose(chance, &self.processes[process], role == Role::Writes);
        if role == Role::Writes || !matches!(operation, Operation::Open { .. }) {
            self.begin(thread, operation, until);
        }
    }

    fn begin(&mut self, thread: usize, operation: Operation, until: Until) {
        let process = self.processes[self.threads[thread].process].clone();
        self.threads[thread].actor.start(Box::new(move || operation.run(&process)), until);
    }

    /// The thread goes on, or starts what a helper has to do; `false` if there is nothing.
    fn proceed(&mut self, thread: usize, until: Until) -> bool {
        let Thread { process, role, .. } = self.threads[thread];
        let task = if self.is_busy(thread) { None } else { self.tasks(process, role).and_then(Tasks::next) };
        let Thread { process, actor, .. } = &mut self.threads[thread];
        if actor.paused().is_some() {
            actor.go(until, None);
        } else if let Some(task) = task {
            let forks = self.processes[*process].forks();
            actor.start(Box::new(move || in_process(forks, task)), until);
        } else {
            return false;
        }
        true
    }

    /// Starts an operation of a process, whose helper goes on where the operation waits for it.
    pub(super) fn start(&mut self, process: usize, operation: Operation, until: Until) {
        let writer = self.thread(process, Role::Writes);
        self.begin(writer, operation, until);
        self.follow(process);
    }

    /// What has stopped in the process goes on.
    pub(super) fn go(&mut self, process: usize, until: Until, fault: Option<Fault>) {
        let (writer, helper) = (self.thread(process, Role::Writes), self.thread(process, Role::Helps));
        let stopped = if self.is_busy(helper) { helper } else { writer };
        self.threads[stopped].actor.go(until, fault);
        self.follow(process);
    }

    fn follow(&mut self, process: usize) {
        let (writer, helper) = (self.thread(process, Role::Writes), self.thread(process, Role::Helps));
        while !self.is_busy(helper) && self.threads[writer].actor.waits() {
            let left = self.threads[writer].actor.left();
            if !self.proceed(helper, left) || self.is_busy(helper) {
                return;
            }
            let left = self.threads[helper].actor.left();
            self.threads[writer].actor.go(left, None);
        }
    }

    /// Lets the process come to the end of its operation.
    pub(super) fn finish(&mut self, process: usize) {
        self.finish_those(|own| own == process);
    }

    /// Lets all processes come to the end of their operations.
    pub(super) fn finish_all(&mut self) {
        self.finish_those(|_| true);
    }

    fn finish_those(&mut self, are_meant: impl Fn(usize) -> bool) {
        for _ in 0..10_000 {
            let mut is_over = true;
            for thread in 0..self.threads.len() {
                let Thread { process, role, ref actor } = self.threads[thread];
                let has_work = self.is_busy(thread) || self.tasks(process, role).is_some();
                // One that sleeps, sleeps on: another thread may have to do something before.
                if are_meant(process) && has_work && !actor.sleeps() {
                    is_over &= !self.proceed(thread, Until::Done);
                }
            }
            if is_over {
                return;
            }
        }
        panic!("threads wait for each other, or for one that is paused");
    }

    /// The process dies where its threads have stopped.
    pub(super) fn crash(&mut self, process: usize) {
        self.world.note(|| format!("process {process} dies"));
        self.end_threads(process);
        self.processes[process].crashed();
    }

    fn end_threads(&mut self, process: usize) {
        // Helpers first: a thread that waits for one waits in its destructors too.
        let Started { tasks, lasting } = &self.processes[process].started;
        while tasks.next().is_some() || lasting.next().is_some() {}
        let mut threads: Vec<_> = self.threads.iter_mut().filter(|own| own.process == process).collect();
        threads.sort_by_key(|thread| thread.role != Role::Helps);
        for thread in threads {
            thread.actor.crash();
        }
    }

    /// The process forks: the child, which has none of its other threads, goes on in its place.
    pub(super) fn fork(&mut self, process: usize) {
        self.world.note(|| format!("process {process} forks"));
        self.end_threads(process);
        self.world.strays.note_fork(process);
        self.processes[process].forked();
    }

    /// All processes die, and what is not durable may be gone.
    pub(super) fn lose_power(&mut self, chance: &mut Chance) {
        (0..self.processes.len()).for_each(|process| self.crash(process));
        self.world.note(|| "power is lost".to_owned());
        self.world.folder.lose_power(chance);
    }

    /// Whether the processes of a machine, other than the observer, can reach the object store.
    pub(super) fn set_outages(&self, machines: u64) {
        if self.world.outages.get() != machines {
            self.world.note(|| format!("machines out of reach: {machines:b}"));
            self.world.outages.set(machines);
        }
    }

    /// All processes of a machine die, and it may lose its disk.
    pub(super) fn stop_machine(&mut self, fleet: &Fleet, machine: usize, loses_disk: bool) {
        let is_on_it = |process: &usize| fleet.machine_of(*process) == machine;
        (0..self.processes.len()).filter(is_on_it).for_each(|process| self.crash(process));
        if loses_disk {
            self.world.note(|| format!("machine {machine} loses its disk"));
            fleet.machines.lose_disk(machine);
            self.world.kept().retain(|kept| kept.machine != machine);
        }
    }

    /// A machine starts again and sends what waits there: what was reported durable on it is in the store.
    pub(super) fn settle_machine(&mut self, fleet: &Fleet, machine: usize) {
        let process = machine * fleet.each;
        self.crash(process);
        self.run(process, Operation::Open { fresh: true });
        self.processes[process].set_sealed(false);
        for _ in 0..SETTLED_AT_MOST {
            if self.processes[process].session().is_some() && !self.processes[process].has_sealed() {
                self.run(process, Operation::Seal);
            }
        }
        let is_settled = self.processes[process].has_sealed();
        if is_settled {
            let kept: Vec<_> = self.world.kept().extract_if(.., |kept| kept.machine == machine).collect();
            let arrived = kept.into_iter().filter(|kept| kept.is_of(&self.world.folder));
            for Kept { session, rows, .. } in arrived {
                self.world.oracle().arrived(&rows, session);
            }
        }
    }

    /// What a process that opens the folder now finds: everything that was acknowledged, and nothing dead. Once
    /// more without the index runs, which can be made again.
    pub(super) fn observe(&mut self) {
        let process = self.processes.len() - 1;
        for with_runs in [true, false] {
            let runs = self.world.folder.names("run-");
            runs.iter().filter(|_| !with_runs).for_each(|run| self.world.folder.remove_file(run));
            self.run(process, Operation::Open { fresh: true });
            for view in 0..VIEWS {
                self.run(process, Operation::Lookup { keys: KEYS.to_vec(), view, replaces: None });
            }
            self.crash(process);
        }
    }

    /// As [`observe`](Self::observe), on a machine that has not seen the folder before.
    pub(super) fn observe_on(&mut self, fleet: &Fleet) {
        let process = self.processes.len() - 1;
        for _ in 0..2 {
            self.stop_machine(fleet, fleet.machine_of(process), true);
            self.run(process, Operation::Open { fresh: true });
            for view in 0..VIEWS {
                self.run(process, Operation::Lookup { keys: KEYS.to_vec(), view, replaces: None });
            }
        }
        self.crash(process);
    }

    /// A process that opens the folder now can write to it and invalidate in it, whatever has happened.
    pub(super) fn write_after_all(&mut self) {
        let process = self.processes.len() - 1;
        self.run(process, Operation::Open { fresh: true });
        self.run(process, Operation::Invalidate(Matcher::Keys(vec![KEYS[0]])));
        let lookup = Operation::Lookup { keys: KEYS.to_vec(), view: 0, replaces: None };
        let has_stamps = self.processes[process].has_stamps();
        self.run(process, if has_stamps { Operation::Judge(Judging::of_all_keys()) } else { lookup });
        self.run(process, Operation::Insert { pending: 0, most: KEYS.len(), handle: 0 });
        self.run(process, Operation::Seal);
        self.run(process, Operation::Invalidate(Matcher::Keys(vec![KEYS[1]])));
        self.crash(process);
    }

    /// What is damaged is repaired, while all others stay where they are.
    pub(super) fn repair(&mut self) {
        self.run(self.processes.len() - 1, Operation::Repair { end: false });
    }

    /// What is damaged is repaired, until nothing is left.
    pub(super) fn repair_all(&mut self) {
        self.run(self.processes.len() - 1, Operation::Repair { end: true });
    }

    /// A process joins what can be joined: of rows with the same number, one is left.
    pub(super) fn join_all(&mut self) {
        let process = self.processes.len() - 1;
        self.run(process, Operation::Open { fresh: true });
        self.run(process, Operation::Compact(Effort::Thorough));
        self.crash(process);
    }

    /// Runs an operation from beginning to end.
    pub(super) fn run(&mut self, process: usize, operation: Operation) {
        self.start(process, operation, Until::Done);
        self.finish(process);
    }

    /// Runs an operation on the thread that looks up while the first is busy.
    #[cfg(test)]
    pub(super) fn run_beside(&mut self, process: usize, operation: Operation) {
        self.begin(self.thread(process, Role::Reads), operation, Until::Done);
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.world.oracle().violation().map(str::to_owned)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        (0..self.processes.len()).for_each(|process| self.crash(process));
    }
}
