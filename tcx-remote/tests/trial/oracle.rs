//! What must be true of the events of all machines, and of what a new machine finds in the end.

use std::collections::BTreeMap;
use std::fmt;

use crate::events::{Entry, Event, Time};

/// An invalidation may not be known to other machines for so long, if the store could not be asked. Rows that they compute before may die
/// by it.
const SEEN_WITHIN: Time = 60_000_000_000;

/// A row that a machine computed.
#[derive(Clone, Copy, Debug)]
struct Row {
    machine: u64,
    life: u64,
    /// When it was accepted, if the machine lived to say so.
    accepted: Option<Time>,
}

/// An invalidation of an id: from when to when, and whether it succeeded.
#[derive(Clone, Copy, Debug)]
struct Invalidation {
    machine: u64,
    life: u64,
    began: Time,
    ended: Option<Time>,
    is_done: bool,
}

#[derive(Default)]
struct History {
    /// By id and value.
    rows: BTreeMap<(i64, Time), Row>,
    invalidations: BTreeMap<i64, Vec<Invalidation>>,
    /// Of a life of a machine: from when to when everything is in the store, or on the machine.
    flushed: BTreeMap<(u64, u64), Vec<(Time, Time)>>,
    kept: BTreeMap<(u64, u64), Vec<(Time, Time)>>,
    /// The last flush of a life that said that rows were not kept.
    not_kept: BTreeMap<(u64, u64), Time>,
    /// When a machine lost its disk.
    lost_disks: BTreeMap<u64, Time>,
}

/// What was counted, and what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Report {
    computed: usize,
    found: usize,
    acknowledged: usize,
    invalidations: usize,
    failed: usize,
    wrong: Vec<String>,
    lost: Vec<String>,
}

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.lost.is_empty() && self.failed == 0 && self.acknowledged > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { computed, found, acknowledged, invalidations, failed, wrong, lost } = self;
        write!(
            f,
            "{computed} rows computed, {acknowledged} ids acknowledged, {found} rows found, {invalidations} invalidations; {failed} \
             lookups and inserts failed, {} rows are wrong, {} ids are lost",
            wrong.len(),
            lost.len()
        )?;
        wrong.iter().chain(lost).take(40).try_for_each(|what| write!(f, "\n{what}"))
    }
}

/// `last` is what a new machine finds, by id.
pub(crate) fn check(entries: &[Entry], last: &[Option<Time>]) -> Report {
    let (mut report, mut history) = (Report::default(), History::default());
    for entry in entries {
        history.note(entry);
    }
    for Entry { at, machine, event, .. } in entries {
        match *event {
            Event::Failed => report.failed += 1,
            Event::Torn { key } => report.wrong.push(format!("{key}: a torn row at {at} on {machine}")),
            Event::Found { key, value, since } => {
                report.found += 1;
                report
                    .wrong
                    .extend(history.fault(key, value, since).map(|why| format!("{why}, on {machine}")));
            }
            _ => {}
        }
    }
    for (key, value) in (0..).zip(last) {
        let fault = value.and_then(|value| history.fault(key, value, Some(Time::MAX)));
        report.wrong.extend(fault.map(|why| format!("{why}, in the end")));
    }
    let acknowledged = history.acknowledged();
    let missing = acknowledged.iter().filter(|(key, _)| last[**key as usize].is_none());
    report.lost = missing.map(|(key, why)| format!("{key} is lost: {why}")).collect();
    report.computed = history.rows.len();
    report.acknowledged = acknowledged.len();
    report.invalidations = history.invalidations.values().map(Vec::len).sum();
    report
}

impl History {
    fn note(&mut self, entry: &Entry) {
        let Entry { at, machine, life, event } = *entry;
        match event {
            Event::Computing { key, value } => {
                self.rows.insert((key, value), Row { machine, life, accepted: None });
            }
            Event::Computed { key, value } => {
                self.rows.entry((key, value)).and_modify(|row| row.accepted = Some(at));
            }
            Event::Invalidating { key } => {
                let own = Invalidation { machine, life, began: at, ended: None, is_done: false };
                self.invalidations.entry(key).or_default().push(own);
            }
            Event::Invalidated { key, is_done } => {
                let own = self.invalidations.get_mut(&key).into_iter().flatten();
                let mut own = own.filter(|own| (own.machine, own.life) == (machine, life));
                let open = own.find(|own| own.ended.is_none());
                if let Some(open) = open {
                    (open.ended, open.is_done) = (Some(at), is_done);
                }
            }
            Event::Flushed { since, is_in_store } => {
                let from = self.not_kept.get(&(machine, life)).copied().unwrap_or(0);
                let into = if is_in_store { &mut self.flushed } else { &mut self.kept };
                into.entry((machine, life)).or_default().push((from, since));
            }
            Event::NotFlushed => {
                self.not_kept.insert((machine, life), at);
            }
            Event::LostDisk => {
                self.lost_disks.insert(machine, at);
            }
            Event::Failed | Event::Found { .. } | Event::Torn { .. } => {}
        }
    }

    /// Why a row must not have been found by a lookup after a refresh that began at `since`.
    fn fault(&self, key: i64, value: Time, since: Option<Time>) -> Option<String> {
        let Some(row) = self.rows.get(&(key, value)) else {
            return Some(format!("{key}: {value} was never computed"));
        };
        let (accepted, since) = (row.accepted?, since?);
        let is_dead = |own: &&Invalidation| {
            own.is_done && own.began > accepted && own.ended.is_some_and(|ended| ended <= since)
        };
        let killer = self.invalidations.get(&key)?.iter().find(is_dead)?;
        Some(format!("{key}: {value} of {row:?} was found after {since}, and is dead since {killer:?}"))
    }

    /// The ids that must be found in the end, and why.
    fn acknowledged(&self) -> BTreeMap<i64, String> {
        let alive = self.rows.iter().filter(|((key, value), _)| self.is_alive(*key, *value));
        let durable = alive.filter_map(|((key, value), row)| {
            let where_to = self.durable(row)?;
            Some((*key, format!("{value} was acknowledged to be {where_to}: {row:?}")))
        });
        durable.collect()
    }

    /// Where an acknowledged row is, if it must be somewhere.
    fn durable(&self, row: &Row) -> Option<&'static str> {
        let accepted = row.accepted?;
        let is_covered = |flushes: &BTreeMap<_, Vec<(Time, Time)>>| {
            let mut own = flushes.get(&(row.machine, row.life)).into_iter().flatten();
            own.any(|(from, to)| (*from..*to).contains(&accepted))
        };
        let has_its_disk = self.lost_disks.get(&row.machine).is_none_or(|lost| *lost < accepted);
        match (is_covered(&self.flushed), is_covered(&self.kept) && has_its_disk) {
            (true, _) => Some("in the store"),
            (false, true) => Some("on its machine"),
            (false, false) => None,
        }
    }

    /// Whether no invalidation can have killed a row that was computed at this time.
    fn is_alive(&self, key: i64, computed: Time) -> bool {
        let own = self.invalidations.get(&key).into_iter().flatten();
        own.clone().all(|own| own.ended.is_some_and(|ended| ended + SEEN_WITHIN < computed))
    }
}
