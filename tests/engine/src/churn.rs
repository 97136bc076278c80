//! Rows that come and go: what a process that does this says, and what may be found after it was killed.

use std::fmt;

use tcx_store::{Column, Keys, Store};

use crate::row;

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
    /// Reads a line; the last one of a killed process may be cut.
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
}

/// The ids of a block.
pub fn block_ids(prefix: &str, block: usize) -> Vec<String> {
    (0..ROWS).map(|row| format!("{prefix}/{block}/{row}")).collect()
}

/// The rows of these ids, with this value.
pub fn block_rows(ids: &[String], value: i64) -> Vec<Column> {
    let vectors: Vec<u8> = ids.iter().flat_map(|id| row(id).0).collect();
    let scores: Vec<u8> = ids.iter().flat_map(|_| value.to_le_bytes()).collect();
    vec![Column::dense(&vectors), Column::dense(&scores), Column::text(ids.iter().map(|id| row(id).2))]
}

/// The values of the rows that are there; everything else of them is as their ids say.
pub fn values(store: &Store, ids: &[String]) -> Vec<Option<i64>> {
    store.refresh().unwrap();
    let rows = store.lookup(Keys::text(ids, 0).unwrap()).unwrap();
    let missing: Vec<usize> = rows.missing_rows().collect();
    let value = |(position, id): (usize, &String)| {
        if missing.contains(&position) {
            return None;
        }
        let (vector, _, caption) = row(id);
        assert_eq!(rows.bytes(0, position), vector, "vector of {id}");
        assert_eq!(rows.text(2, position).unwrap(), caption);
        Some(i64::from_le_bytes(rows.bytes(1, position).try_into().unwrap()))
    };
    ids.iter().enumerate().map(value).collect()
}

/// Compares what is there with what a process has said before it was killed.
pub fn check(store: &Store, prefix: &str, events: &[Event]) {
    for block in 0..BLOCKS {
        let found = values(store, &block_ids(prefix, block));
        let of_block = |event: &&Event| {
            let (Event::Killing(own) | Event::Dead(own) | Event::Computing(own, _) | Event::Durable(own, _)) =
                event;
            *own == block
        };
        let own: Vec<Event> = events.iter().filter(of_block).copied().collect();
        let before = |count: usize| match own.iter().rev().nth(count) {
            Some(Event::Durable(_, value)) => Some(*value),
            _ => None,
        };
        match own.last() {
            Some(Event::Durable(_, value)) => {
                assert!(
                    found.iter().all(|row| *row == Some(*value)),
                    "{prefix}/{block}: {value} is lost: {found:?}"
                );
            }
            // It may have happened, to all rows or to none.
            Some(Event::Killing(_)) => {
                let value = before(1);
                assert!(
                    found.iter().all(|row| *row == value) || found.iter().all(Option::is_none),
                    "{found:?}"
                );
            }
            Some(Event::Computing(_, value)) => {
                let is_new = |row: &Option<i64>| row.is_none_or(|row| row == *value);
                assert!(found.iter().all(is_new), "{prefix}/{block}: dead rows are served: {found:?}");
            }
            Some(Event::Dead(_)) | None => {
                assert!(
                    found.iter().all(Option::is_none),
                    "{prefix}/{block}: dead rows are served: {found:?}"
                );
            }
        }
    }
}
