//! A script: what each process does, where it is paused or dies, and what goes wrong.

use std::time::Duration;

use super::chance::Chance;
use super::history::Matcher;
use super::operation::{KEYS, Operation, VIEWS};
use super::process::Habits;
use super::run::{Setup, Simulation};
use super::schedule::{Fault, Until};
use super::weather::Weather;
use crate::upkeep::compaction::Effort;

pub(super) const COMPACT: Operation = Operation::Compact(Effort::Thorough);
pub(super) const COLLECT: Operation = Operation::Collect(Duration::ZERO);

pub(super) fn invalidate_a1() -> Operation {
    Operation::Invalidate(Matcher::Keys(vec!["a1"]))
}

/// Processes with one thread each, which have the store open; nothing goes wrong that the script does not say.
pub(super) struct Script(pub(super) Simulation);

impl Script {
    pub(super) fn new(processes: usize) -> Self {
        Self::with(processes, 1, false)
    }

    /// Processes with a second thread that looks up while the first is busy.
    pub(super) fn with_two_threads(processes: usize) -> Self {
        Self::with(processes, 2, false)
    }

    /// Processes whose rows have stamps.
    pub(super) fn with_stamps(processes: usize) -> Self {
        Self::with(processes, 1, true)
    }

    fn with(processes: usize, threads: usize, stamps: bool) -> Self {
        let setup = Setup {
            processes,
            threads,
            weather: Weather::default(),
            time_to_live: None,
            habits: Habits::plain(0),
            stamps,
            refresh_every: Duration::ZERO,
            grain: 1,
            traced: true,
        };
        let mut script = Self(Simulation::new(&setup, &mut Chance::new(1)));
        (0..processes).for_each(|process| script.open(process));
        script
    }

    pub(super) fn open(&mut self, process: usize) {
        self.run(process, Operation::Open { fresh: true });
    }

    pub(super) fn run(&mut self, process: usize, operation: Operation) {
        self.0.run(process, operation);
        self.check();
    }

    /// Starts an operation and lets the process stop before that storage call.
    pub(super) fn pause(
        &mut self,
        process: usize,
        operation: Operation,
        call: &'static str,
        file: &'static str,
    ) {
        self.0.start(process, operation, Until::At(call, file));
        self.assert_paused(process, call, file);
    }

    /// The process goes on, and stops before the next storage call of this name for this file.
    pub(super) fn pause_again(&mut self, process: usize, call: &'static str, file: &'static str) {
        self.0.go(process, Until::At(call, file), None);
        self.assert_paused(process, call, file);
    }

    /// The process goes on to the end of its operation.
    pub(super) fn resume(&mut self, process: usize) {
        self.0.finish(process);
        self.check();
    }

    /// As [`resume`](Self::resume); the call that it has stopped at goes wrong.
    pub(super) fn resume_with(&mut self, process: usize, fault: Fault) {
        self.0.go(process, Until::Done, Some(fault));
        self.resume(process);
    }

    /// The call that it has stopped at goes wrong, and it stops at the next one of this name for this file.
    pub(super) fn pause_again_with(
        &mut self,
        process: usize,
        fault: Fault,
        call: &'static str,
        file: &'static str,
    ) {
        self.0.go(process, Until::At(call, file), Some(fault));
        self.assert_paused(process, call, file);
    }

    pub(super) fn refresh(&mut self, process: usize) {
        self.run(process, Operation::Refresh { fresh: true });
    }

    pub(super) fn lookup(&mut self, process: usize, keys: &[&'static str]) {
        self.run(process, Operation::Lookup { keys: keys.to_vec(), view: 0, replaces: None });
    }

    pub(super) fn insert(&mut self, process: usize, pending: usize) {
        self.run(process, Operation::Insert { pending, most: KEYS.len(), handle: 0 });
    }

    /// Looks up rows and computes those that are missing.
    pub(super) fn compute(&mut self, process: usize, keys: &[&'static str]) {
        self.lookup(process, keys);
        self.insert(process, 0);
    }

    /// As [`compute`](Self::compute), anew.
    pub(super) fn replace(&mut self, process: usize, keys: &[&'static str]) {
        self.run(process, Operation::Lookup { keys: keys.to_vec(), view: 0, replaces: Some(0) });
        self.insert(process, 0);
    }

    pub(super) fn seal(&mut self, process: usize) {
        self.run(process, Operation::Seal);
    }

    /// Rows in a segment of their own.
    pub(super) fn write(&mut self, process: usize, keys: &[&'static str]) {
        self.compute(process, keys);
        self.seal(process);
    }

    pub(super) fn invalidate(&mut self, process: usize, key: &'static str) {
        self.run(process, Operation::Invalidate(Matcher::Keys(vec![key])));
    }

    /// From now on the rows of these keys may be cut away by a [trim](Operation::Trim).
    pub(super) fn may_cut(&mut self, keys: &[&'static str]) {
        self.0.world.oracle().trimmed = keys.to_vec();
    }

    pub(super) fn collect(&mut self, process: usize) {
        self.run(process, Operation::Collect(Duration::ZERO));
    }

    /// The values of these keys; `None` where there is none.
    pub(super) fn values(&mut self, process: usize, keys: &[&'static str]) -> Vec<Option<i64>> {
        self.lookup(process, keys);
        self.0.process(process).found()
    }

    pub(super) fn open_if_refused(&mut self, process: usize) {
        if self.is_refused(process) {
            self.open(process);
        }
    }

    pub(super) fn is_refused(&self, process: usize) -> bool {
        self.0.process(process).session().is_none()
    }

    pub(super) fn check(&self) {
        if let Some(what) = self.0.violation() {
            panic!("{}\n{what}", self.trace());
        }
    }

    fn assert_paused(&self, process: usize, call: &str, file: &str) {
        assert!(self.0.is_paused(process), "{}\nit comes to {call} {file}", self.trace());
    }

    fn trace(&self) -> String {
        self.0.world.folder.trace.lines().join("\n")
    }

    /// Everybody comes to an end and looks at everything; so does a new process.
    pub(super) fn end(mut self) {
        self.0.finish_all();
        for process in 0..self.0.processes() {
            if !self.is_refused(process) {
                self.refresh(process);
                for view in 0..VIEWS {
                    self.run(process, Operation::Lookup { keys: KEYS.to_vec(), view, replaces: None });
                }
            }
        }
        self.0.observe();
        self.check();
    }
}

/// Process 0 is paused at each storage call of an operation in turn, while the others go on; tells at how many.
pub(super) fn at_every_call(
    prepare: impl Fn(&mut Script),
    operation: impl Fn() -> Operation,
    meanwhile: impl Fn(&mut Script),
) -> usize {
    for calls in 0.. {
        let mut script = Script::new(3);
        prepare(&mut script);
        script.0.start(0, operation(), Until::Calls(calls));
        if !script.0.is_paused(0) {
            return calls;
        }
        meanwhile(&mut script);
        script.0.finish_all();
        script.end();
    }
    unreachable!("operations end")
}

pub(super) fn three_segments(script: &mut Script) {
    script.write(0, &["a1", "a2"]);
    script.write(1, &["a3", "b1"]);
    script.write(2, &["a1", "b2"]);
    (0..3).for_each(|process| script.refresh(process));
}

/// Process 0 dies before each storage call of an operation in turn; tells how many there are.
pub(super) fn dies_everywhere(prepare: impl Fn(&mut Script), operation: impl Fn() -> Operation) -> usize {
    at_every_call(prepare, operation, |script| {
        script.0.crash(0);
        script.open(0);
        // What it has left is no obstacle to anybody.
        for process in 0..2 {
            script.write(process, &["a1", "b3"]);
            script.run(process, COMPACT);
            script.collect(process);
        }
    })
}
