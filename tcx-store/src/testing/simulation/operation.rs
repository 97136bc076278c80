//! What a simulated process does. A new operation is a variant, its weight, and its arm in [`Operation::run`]; if it
//! says something about rows, it tells the oracle.

mod invalidations;
mod repairs;

use std::time::Duration;

use super::chance::Chance;
use super::history::Matcher;
use super::lookups::{insert, lookup, lookup_again};
use super::process::{Process, Session};
use super::renewals::{Judging, judge, reject};
use super::schedule::{Clock, fresh, in_process};
use crate::upkeep::compaction::Effort;
use crate::upkeep::tasks::{merge_changes, merge_runs};
use invalidations::{age, invalidate, invalidate_found};
use repairs::repair;

/// All keys of the simulation.
pub(super) const KEYS: [&str; 6] = ["a1", "a2", "a3", "b1", "b2", "b3"];
/// All views.
pub(super) const VIEWS: u32 = 2;
/// The handles of a session, each with its losses; each may recompute.
pub(super) const HANDLES: usize = 2;

#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Opens the store; from true listings if `fresh`, like all that are marked so.
    Open {
        fresh: bool,
    },
    /// Lets go of the store, as the end of a program does: seals and merges first.
    Close,
    /// Looks up keys; a recomputing handle, if it `replaces`, finds only what it has computed itself.
    Lookup {
        keys: Vec<&'static str>,
        view: u32,
        replaces: Option<usize>,
    },
    /// Looks again for what a waiting lookup has missed.
    LookupAgain {
        pending: usize,
    },
    /// Computes what a waiting lookup has missed, `most` rows of it.
    Insert {
        pending: usize,
        most: usize,
        handle: usize,
    },
    Refresh {
        fresh: bool,
    },
    Invalidate(Matcher),
    /// Invalidates what was computed before this time of the folder, in milliseconds.
    InvalidateOlderThan(u64),
    /// Invalidates what is found of these keys.
    InvalidateFound(Vec<&'static str>),
    /// Removes rows until so many bytes are free.
    Evict {
        bytes: u64,
    },
    /// Makes what is buffered durable.
    Seal,
    /// As [`Seal`](Self::Seal), and asks what of its rows a handle has lost.
    Flush {
        handle: usize,
    },
    /// Makes what is buffered durable on the machine of the process, if the folder is elsewhere.
    SealHere,
    /// Writes what is buffered; it becomes durable meanwhile.
    Write,
    MergeRuns {
        ends: bool,
    },
    MergeChanges,
    Compact(Effort),
    /// Removes what is not needed and so old.
    Collect(Duration),
    /// Leaves `rows` rows of one of the served segments.
    Trim {
        segment: usize,
        rows: usize,
    },
    /// Looks rows up to judge or to put them.
    Judge(Judging),
    /// Rejects rows that a waiting lookup has found: those whose bit is set.
    Reject {
        pending: usize,
        positions: usize,
        fresh: bool,
    },
    /// As [`Flush`](Self::Flush), from true listings.
    FlushFreshly {
        handle: usize,
    },
    /// The source of a sample changes.
    Change(&'static str),
    /// Another program verifies the folder, and repairs what is damaged; until nothing is left to repair, if it goes to the `end`.
    Repair {
        end: bool,
    },
}

type Choice = fn(&mut Chance, &Process) -> Operation;

/// What every thread does, and how often.
const OF_ANY_THREAD: [(usize, Choice); 5] = [
    (30, lookup_any),
    (25, |chance, process| match process.pending() {
        0 => lookup_any(chance, process),
        waiting => Operation::Insert {
            pending: chance.below(waiting),
            most: 1 + chance.below(KEYS.len()),
            handle: chance.below(HANDLES),
        },
    }),
    (5, |chance, process| Operation::LookupAgain { pending: chance.below(process.pending().max(1)) }),
    (8, |chance, _| Operation::Refresh { fresh: chance.permille(500) }),
    (5, |chance, _| Operation::Invalidate(match_any(chance))),
];

/// What only the thread does that writes files.
const OF_THE_WRITER: [(usize, Choice); 8] = [
    (8, |_, _| Operation::Seal),
    (6, |chance, _| Operation::Flush { handle: chance.below(HANDLES) }),
    (6, |_, _| Operation::Write),
    (8, |chance, _| Operation::MergeRuns { ends: chance.permille(300) }),
    (5, |_, _| Operation::MergeChanges),
    (6, |chance, _| {
        Operation::Compact(chance.pick(&[Effort::Small, Effort::Steady, Effort::Thorough, Effort::Thorough]))
    }),
    (6, |chance, _| Operation::Collect(Duration::from_secs(chance.pick(&[0, 0, 5])))),
    (4, |_, _| Operation::Close),
];

/// What every thread does as well, if it rejects and puts.
const OF_A_RENEWER: [(usize, Choice); 4] = [
    (8, |chance, _| Operation::Invalidate(match_any(chance))),
    (20, |chance, process| Operation::Judge(Judging::choose(chance, process))),
    (20, |chance, process| Operation::Reject {
        pending: chance.below(process.pending().max(1)),
        positions: 1 + chance.below(15),
        fresh: chance.permille(500),
    }),
    (5, |chance, process| {
        if process.has_stamps() { Operation::Change(chance.pick(&KEYS)) } else { lookup_any(chance, process) }
    }),
];

/// What it does as well, if it is on a machine and the folder is elsewhere.
const OF_A_MACHINE: [(usize, Choice); 1] = [(6, |_, _| Operation::SealHere)];

/// What it does as well, if it puts.
const OF_A_PUTTER: [(usize, Choice); 1] =
    [(10, |chance, _| Operation::FlushFreshly { handle: chance.below(HANDLES) })];

/// What it does as well, if it cuts segments down and makes room. A predicate names the rows that are there: one that was removed must not come
/// back.
const OF_A_REMOVER: [(usize, Choice); 3] = [
    (6, |chance, _| Operation::Trim { segment: chance.below(KEYS.len()), rows: chance.below(KEYS.len()) }),
    (4, |chance, _| Operation::Evict { bytes: chance.pick(&[1, 1, 1 << 20]) }),
    (4, |chance, _| Operation::InvalidateFound(vec![chance.pick(&KEYS), chance.pick(&KEYS)])),
];

/// What it does as well, if files are damaged.
const OF_A_REPAIRER: [(usize, Choice); 1] = [(5, |_, _| Operation::Repair { end: false })];

/// What it does as well, if it invalidates by age.
const OF_AN_AGER: [(usize, Choice); 1] = [(6, |chance, process| {
    let now = process.millis();
    let age = chance.pick(&[0, 1, 50, 2000, 60_000]).min(now);
    Operation::InvalidateOlderThan(now - chance.below(age as usize + 1) as u64)
})];

fn lookup_any(chance: &mut Chance, process: &Process) -> Operation {
    let mut keys = KEYS.to_vec();
    chance.shuffle(&mut keys);
    keys.truncate(1 + chance.below(4));
    let replaces = chance.permille(process.habits().recomputes).then(|| chance.below(HANDLES));
    Operation::Lookup { keys, view: chance.below(VIEWS as usize) as u32, replaces }
}

fn match_any(chance: &mut Chance) -> Matcher {
    match chance.below(4) {
        0 => Matcher::All,
        1 => Matcher::Prefix(chance.pick(&["a", "b"])),
        _ => Matcher::Keys(vec![chance.pick(&KEYS)]),
    }
}

impl Operation {
    /// What a thread of a process does next.
    pub(super) fn choose(chance: &mut Chance, process: &Process, writes: bool) -> Self {
        if process.session().is_none() {
            return Self::Open { fresh: chance.permille(500) };
        }
        let of_the_writer = if writes { &OF_THE_WRITER[..] } else { &[] };
        let of_a_remover = if writes && process.habits().removes { &OF_A_REMOVER[..] } else { &[] };
        let of_an_ager = if writes && process.habits().ages { &OF_AN_AGER[..] } else { &[] };
        let of_a_repairer = if writes && process.habits().repairs { &OF_A_REPAIRER[..] } else { &[] };
        let renews = process.habits().renews;
        let of_a_renewer = if renews { &OF_A_RENEWER[..] } else { &[] };
        let of_a_putter = if writes && renews { &OF_A_PUTTER[..] } else { &[] };
        let of_a_machine = if writes && process.is_on_machine() { &OF_A_MACHINE[..] } else { &[] };
        let choices = || {
            let choices = OF_ANY_THREAD.iter().chain(of_the_writer).chain(of_a_remover).chain(of_an_ager);
            choices.chain(of_a_renewer).chain(of_a_putter).chain(of_a_machine).chain(of_a_repairer)
        };
        let mut at = chance.below(choices().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices() {
            if at < *weight {
                return choice(chance, process);
            }
            at -= weight;
        }
        unreachable!("the weights sum up");
    }

    /// Whether it needs no more than the files of the store.
    fn reads(&self) -> bool {
        matches!(
            self,
            Self::Lookup { .. }
                | Self::LookupAgain { .. }
                | Self::Insert { .. }
                | Self::Judge(_)
                | Self::Reject { .. }
                | Self::Change(_)
        )
    }

    pub(super) fn run(self, process: &Process) {
        in_process(process.forks(), || self.run_here(process));
    }

    fn run_here(self, process: &Process) {
        process.world.note(|| format!("process {}: {self:?}", process.number));
        let session = process.session();
        match (self, session.as_deref()) {
            (Self::Repair { end }, _) => repair(process, end),
            (Self::Open { fresh }, None) => drop(process.open(fresh)),
            (Self::Open { .. }, Some(_)) | (_, None) => {}
            (operation, Some(session)) if session.store.is_inherited() && !operation.reads() => {
                inherited(process, session, &operation);
            }
            (Self::Close, Some(session)) => {
                if seal(process, session) {
                    session.store.core.tidy_at_the_end();
                }
                process.close();
            }
            (Self::Lookup { keys, view, replaces }, _) => lookup(process, keys, view, replaces),
            (Self::LookupAgain { pending }, _) => lookup_again(process, pending),
            (Self::Insert { pending, most, handle }, _) => insert(process, pending, most, handle),
            (Self::Seal, Some(session)) => drop(seal(process, session)),
            (Self::Flush { handle }, Some(session)) => flush(process, session, handle),
            (Self::FlushFreshly { handle }, Some(session)) => {
                process.world.oracle().seals_freshly(session.number(), true);
                fresh(|| flush(process, session, handle));
                process.world.oracle().seals_freshly(session.number(), false);
            }
            (Self::Judge(judging), _) => judge(process, judging),
            (Self::Reject { pending, positions, fresh }, _) => reject(process, pending, positions, fresh),
            (Self::Change(key), _) => process.world.stamps.change(key),
            (Self::SealHere, Some(session)) => {
                let rows = process.world.oracle().seal_begins(session.number());
                let sealed = session.seal_queue().seal_all();
                match sealed {
                    Ok(()) => process.keeps(session, &rows),
                    Err(error) => process.failed(&error),
                }
            }
            (Self::Write, Some(session)) => {
                process.world.oracle().seal_begins(session.number());
                let written = session.seal_queue().write_all();
                written.unwrap_or_else(|error| process.failed(&error));
            }
            (Self::MergeRuns { ends }, Some(session)) => merge_runs(&session.store.core, ends),
            (Self::MergeChanges, Some(session)) => merge_changes(&session.store.core),
            (Self::Compact(effort), Some(session)) => {
                let compacted = session.store.core.compact(effort);
                compacted.map_or_else(|error| process.failed(&error), drop);
            }
            (Self::Collect(age), Some(session)) => {
                let collected = session.store.core.collect(age);
                collected.map_or_else(|error| process.failed(&error), drop);
            }
            (Self::Trim { segment, rows }, Some(session)) => trim(process, session, segment, rows),
            (Self::Invalidate(matcher), Some(session)) => invalidate(process, session, matcher),
            (Self::InvalidateOlderThan(limit), Some(session)) => age(process, session, limit),
            (Self::InvalidateFound(keys), Some(session)) => invalidate_found(process, session, &keys),
            (Self::Evict { bytes }, Some(session)) => {
                let evicted = session.store.core.make_room(bytes);
                evicted.unwrap_or_else(|error| process.failed(&error));
            }
            (Self::Refresh { fresh: true }, Some(session)) => refresh(process, session),
            (Self::Refresh { fresh: false }, Some(session)) => {
                let refreshed = session.store.refresh();
                refreshed.unwrap_or_else(|error| process.failed(&error));
            }
        }
        process.world.note(|| format!("process {}: done", process.number));
    }
}

/// The name that a segment might have.
const NO_SEGMENT: &str = "seg-00000000000000000000000000000000-0000000000000000.arrow";

/// A forked process tries what needs the threads of its parent.
fn inherited(process: &Process, session: &Session, operation: &Operation) {
    let store = &session.store;
    let tried = match operation {
        Operation::Close => return process.close(),
        Operation::Refresh { .. } => return,
        Operation::Invalidate(_) => store.invalidate_all(),
        Operation::InvalidateOlderThan(limit) => store.invalidate_older_than(Clock::wall(*limit)),
        Operation::InvalidateFound(_) => store.invalidate_where(|_| true),
        Operation::Evict { bytes } => store.make_room(*bytes),
        Operation::Compact(_) => store.compact(),
        Operation::Collect(age) => store.collect(*age).map(drop),
        Operation::Trim { rows, .. } => store.trim_segment(NO_SEGMENT, *rows as u64).map(drop),
        _ => store.flush(),
    };
    if tried.is_ok() {
        process.world.oracle().violated(format!("a forked process has done this: {operation:?}"));
    }
}

/// Seals what is buffered; `true` if that is durable.
fn seal(process: &Process, session: &Session) -> bool {
    let rows = process.world.oracle().seal_begins(session.number());
    session.store.core.storage.try_now();
    let sealed = session.seal_queue().seal_all();
    if sealed.is_ok() {
        process.keeps(session, &rows);
    }
    let sealed = sealed.and_then(|()| session.seal_queue().settle());
    process.set_sealed(sealed.is_ok());
    match sealed {
        Ok(()) => {
            process.world.oracle().acknowledged(&rows, session.number());
            process.world.note(|| format!("process {}: acknowledged {rows:?}", process.number));
            true
        }
        Err(error) => {
            process.failed(&error);
            false
        }
    }
}

/// A handle flushes: if that succeeds, it learns of its own losses since it asked last, and of no other's.
fn flush(process: &Process, session: &Session, handle: usize) {
    if seal(process, session) {
        let reported = session.losses[handle].take().err().map(|error| format!("{error:#}"));
        process.world.oracle().reported(session.number(), handle, reported.as_deref());
    }
}

/// Cuts down one of the segments that are served, in the order of their names.
fn trim(process: &Process, session: &Session, segment: usize, rows: usize) {
    let served = session.store.core.snapshot().segments.clone();
    let mut names: Vec<String> = served.iter().map(|segment| segment.name().to_string()).collect();
    names.sort();
    if names.is_empty() {
        return;
    }
    let name = &names[segment % names.len()];
    match session.store.trim_segment(name, rows as u64) {
        Ok(is_done) => {
            process.world.note(|| format!("process {}: {name} trimmed: {is_done}", process.number));
        }
        Err(error) => process.failed(&error),
    }
}

fn refresh(process: &Process, session: &Session) {
    process.see_misled(session);
    let since = process.world.oracle().now();
    match fresh(|| session.store.refresh()) {
        Ok(()) => process.world.oracle().refreshed(session.number(), since),
        Err(error) => process.failed(&error),
    }
}
