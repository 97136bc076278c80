//! Rows that come and go: what a process that does this says, and what may be found meanwhile and after it was killed.

use std::fmt;
use std::time::Duration;

use tcx_store::{Column, Keys, Result, Store};

use crate::{Dice, Findings, Worker, Workers, columns, files, open, row};

/// Blocks of rows that a process works on.
pub const BLOCKS: usize = 8;
/// Rows of a block.
const ROWS: usize = 20;

/// What a process has begun or done, one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The block is going to be invalidated.
    Killing(usize),
    /// It has been: durably.
    Dead(usize),
    /// Its rows are going to have this value.
    Computing(usize, i64),
    /// They have it: durably.
    Durable(usize, i64),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killing(block) => write!(f, "killing {block}"),
            Self::Dead(block) => write!(f, "dead {block}"),
            Self::Computing(block, value) => write!(f, "computing {block} {value}"),
            Self::Durable(block, value) => write!(f, "durable {block} {value}"),
        }
    }
}

impl Event {
    /// Reads a line.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let block = words.get(1)?.parse().ok()?;
        match words[..] {
            ["killing", _] => Some(Self::Killing(block)),
            ["dead", _] => Some(Self::Dead(block)),
            ["computing", _, value] => Some(Self::Computing(block, value.parse().ok()?)),
            ["durable", _, value] => Some(Self::Durable(block, value.parse().ok()?)),
            _ => None,
        }
    }

    /// Reads what a process has said so far; its last line may be cut.
    pub fn parse_all(said: &str) -> Vec<Self> {
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        whole.lines().filter_map(Self::parse).collect()
    }

    fn block(&self) -> usize {
        let (Self::Killing(block) | Self::Dead(block) | Self::Computing(block, _) | Self::Durable(block, _)) =
            self;
        *block
    }
}

/// The ids of a block.
pub fn block_ids(prefix: &str, block: usize) -> Vec<String> {
    (0..ROWS).map(|row| format!("{prefix}/{block}/{row}")).collect()
}

/// The rows of these ids, with this value.
pub fn block_rows(ids: &[String], value: i64) -> Vec<Column> {
    let mut rows = columns(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    rows[1] = Column::dense(&value.to_le_bytes().repeat(ids.len()));
    rows
}

/// The values of the rows that are there; everything else of them is as their ids say.
pub fn values(store: &Store, ids: &[String]) -> Vec<Option<i64>> {
    try_values(store, ids).unwrap()
}

/// The same, of a folder that may be gone.
fn try_values(store: &Store, ids: &[String]) -> Result<Vec<Option<i64>>> {
    store.refresh()?;
    let rows = store.lookup(Keys::text(ids, 0)?)?;
    let missing: Vec<usize> = rows.all_missing_positions().collect();
    let value = |(position, id): (usize, &String)| {
        if missing.contains(&position) {
            return None;
        }
        let (vector, _, caption) = row(id);
        assert_eq!(rows.bytes(0, position), vector, "vector of {id}");
        assert_eq!(rows.text(2, position).unwrap(), caption);
        Some(i64::from_le_bytes(rows.bytes(1, position).try_into().unwrap()))
    };
    Ok(ids.iter().enumerate().map(value).collect())
}

/// What the rows of a block may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Allowed {
    values: Vec<i64>,
    missing: bool,
}

impl Allowed {
    /// After the first `from` to all of these events, which are of one block.
    fn between(events: &[Event], from: usize) -> Self {
        let mut between = Self::default();
        let mut now = Self { values: Vec::new(), missing: true };
        for said in 0..=events.len() {
            if said > 0 {
                now.follow(events[said - 1]);
            }
            if said >= from {
                between.values.extend(&now.values);
                between.missing |= now.missing;
            }
        }
        between
    }

    /// What was begun may have happened, or not yet, or never if it failed; what is done has replaced everything before.
    fn follow(&mut self, event: Event) {
        match event {
            Event::Killing(_) => self.missing = true,
            Event::Dead(_) => *self = Self { values: Vec::new(), missing: true },
            Event::Computing(_, value) => self.values.push(value),
            Event::Durable(_, value) => *self = Self { values: vec![value], missing: false },
        }
    }

    fn judge(&self, block: &str, found: &[Option<i64>]) -> Findings {
        let mut findings = Findings::default();
        let values = &self.values;
        if found.iter().flatten().any(|value| !values.contains(value)) {
            findings.wrong.push(format!("{block}: dead rows are served: {found:?}, allowed is {self:?}"));
        }
        if !self.missing && found.contains(&None) {
            findings.lost.push(format!("{block}: {values:?} is lost: {found:?}"));
        }
        findings
    }
}

/// Looks at a block that a process works on meanwhile. `said` tells what it has said up to that moment; `misses` counts
/// looks in vain at what is there, as another look shows.
pub fn look(
    store: &Store,
    prefix: &str,
    block: usize,
    said: impl Fn() -> Vec<Event>,
    misses: &mut usize,
) -> Findings {
    let of_block = || said().into_iter().filter(|event| event.block() == block).collect::<Vec<_>>();
    let mut from = of_block().len();
    let mut look = || {
        let found = values(store, &block_ids(prefix, block));
        let events = of_block();
        let findings = Allowed::between(&events, from).judge(&format!("{prefix}/{block}"), &found);
        from = events.len();
        findings
    };
    let mut findings = look();
    for _ in 0..20 {
        if findings.lost.is_empty() {
            break;
        }
        // A listing may coincide with the replacement of a file by another.
        *misses += 1;
        std::thread::sleep(Duration::from_millis(50));
        let again = look();
        findings.lost = again.lost;
        findings.wrong.extend(again.wrong);
    }
    findings
}

/// Looks once at a block that another process works on, in a folder that may be gone.
///
/// # Errors
///
/// If the folder cannot be read, or is another's.
pub fn try_look(
    store: &Store,
    prefix: &str,
    block: usize,
    said: impl Fn() -> Vec<Event>,
) -> Result<Findings> {
    let of_block = || said().into_iter().filter(|event| event.block() == block).collect::<Vec<_>>();
    let from = of_block().len();
    let found = try_values(store, &block_ids(prefix, block))?;
    Ok(Allowed::between(&of_block(), from).judge(&format!("{prefix}/{block}"), &found))
}

/// Compares what is there with what a process has said before it was killed.
pub fn judge(store: &Store, prefix: &str, events: &[Event]) -> Findings {
    let mut findings = Findings::default();
    for block in 0..BLOCKS {
        let own: Vec<Event> = events.iter().filter(|event| event.block() == block).copied().collect();
        let (name, found) = (format!("{prefix}/{block}"), values(store, &block_ids(prefix, block)));
        findings.add(Allowed::between(&own, own.len()).judge(&name, &found));
        let all_or_none = found.iter().all(Option::is_some) || found.iter().all(Option::is_none);
        if matches!(own.last(), Some(Event::Killing(_))) && !all_or_none {
            findings.wrong.push(format!("{name}: invalidated in part: {found:?}"));
        }
    }
    findings
}

/// Processes that compute, invalidate, join and remove on one directory, one of which is killed in each round.
#[derive(Debug)]
pub struct Churn {
    dir: tempfile::TempDir,
    workers: Workers,
    dice: Dice,
    alive: Vec<(String, Worker)>,
    dead: Vec<(String, Vec<Event>)>,
    started: usize,
}

impl Churn {
    /// So many processes at a time.
    pub fn new(workers: &Workers, processes: usize, seed: u64) -> Self {
        let (dir, workers) = (tempfile::tempdir().unwrap(), workers.clone());
        let mut churn =
            Self { dir, workers, dice: Dice(seed), alive: Vec::new(), dead: Vec::new(), started: 0 };
        (0..processes).for_each(|_| churn.start());
        churn
    }

    fn start(&mut self) {
        let name = format!("p{}", self.started);
        self.started += 1;
        let worker = self.workers.start("churn", self.dir.path(), &[&name]);
        self.alive.push((name, worker));
    }

    fn kill(&mut self, (name, worker): (String, Worker)) -> Findings {
        match worker.kill() {
            Ok(said) => {
                self.dead.push((name, Event::parse_all(&said)));
                Findings::default()
            }
            Err(why) => Findings::of_wrong(format!("{name}: {why}")),
        }
    }

    fn judge_all(&self, store: &Store) -> Findings {
        let mut findings = Findings::default();
        for (name, events) in &self.dead {
            findings.add(judge(store, name, events));
        }
        if store.stats().damaged_segments > 0 {
            findings.wrong.push("a process that was killed has left a damaged segment".to_owned());
        }
        findings
    }

    /// Kills one of the processes at any moment, starts another, and looks at what the dead ones have left.
    pub fn round(&mut self) -> Findings {
        std::thread::sleep(Duration::from_micros(self.dice.roll(400_000) as u64));
        let chosen = self.dice.roll(self.alive.len());
        let killed = self.alive.remove(chosen);
        let mut findings = self.kill(killed);
        self.start();
        findings.add(self.judge_all(&open(self.dir.path())));
        findings
    }

    /// Kills all, joins and removes; tells what was found, and how many events there were.
    pub fn end(mut self) -> (Findings, usize) {
        let mut findings = Findings::default();
        for killed in std::mem::take(&mut self.alive) {
            findings.add(self.kill(killed));
        }
        let store = open(self.dir.path());
        findings.add(self.judge_all(&store));
        store.compact().unwrap();
        store.collect(Duration::ZERO).unwrap();
        findings.add(self.judge_all(&store));
        let left = files(self.dir.path(), "seg-").len();
        if left > 1 {
            findings.wrong.push(format!("{left} segments are left of all that was joined"));
        }
        (findings, self.dead.iter().map(|(_, events)| events.len()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::Event::{Computing, Dead, Durable, Killing};
    use super::*;

    fn allowed(events: &[Event], from: usize) -> (Vec<i64>, bool) {
        let Allowed { values, missing } = Allowed::between(events, from);
        (values, missing)
    }

    #[test]
    fn what_may_be_found_follows_from_what_was_said() {
        let events = [Killing(0), Dead(0), Computing(0, 1), Durable(0, 1), Killing(0), Dead(0)];
        let after = |said: usize| allowed(&events[..said], said);
        assert_eq!(after(0), (vec![], true));
        assert_eq!(after(1), (vec![], true));
        assert_eq!(after(3), (vec![1], true));
        assert_eq!(after(4), (vec![1], false));
        assert_eq!(after(5), (vec![1], true));
        assert_eq!(after(6), (vec![], true));
        // A failed action may have taken effect.
        let failed =
            [Durable(0, 1), Killing(0), Killing(0), Dead(0), Computing(0, 2), Killing(0), Computing(0, 3)];
        assert_eq!(allowed(&failed[..3], 3), (vec![1], true));
        assert_eq!(allowed(&failed, 7), (vec![2, 3], true));
        // The row changed during the lookup: any state of that time is allowed.
        assert_eq!(allowed(&events[..4], 2), (vec![1, 1], true));
        assert_eq!(allowed(&events, 4), (vec![1, 1], true));
    }

    #[test]
    fn a_cut_line_says_nothing() {
        assert_eq!(Event::parse_all("dead 3\ndurable 4 17"), [Dead(3)]);
    }
}
