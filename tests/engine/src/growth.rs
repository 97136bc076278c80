//! A cache that grows by small flushes for a long time.

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tcx_store::{Options, Stats, Store};

use crate::{Findings, files, get_or_compute, judge, lookup, options, spec};

/// What became of a cache of so many flushes of a row each.
#[derive(Debug)]
pub struct Growth {
    /// Flushes until it was enough.
    pub flushes: usize,
    /// The most files that were there after some of them.
    pub most_files: usize,
    /// What must not be.
    pub findings: Findings,
    /// Of the store that was opened at the end.
    pub stats: Stats,
}

/// How many files are left once the upkeep, which no flush waits for, has caught up: it has, when there are `few` and further
/// collections find nothing to do, or after a minute. A busy machine may not let it run for a while.
fn files_after_upkeep(store: &Store, dir: &Path, few: usize) -> usize {
    let start = Instant::now();
    let mut counts = VecDeque::new();
    loop {
        store.collect(Duration::ZERO).unwrap();
        counts.push_back(files(dir, "").len());
        let is_settled =
            counts.len() == 10 && counts.iter().all(|count| *count == counts[0] && *count <= few);
        if is_settled || start.elapsed() > Duration::from_mins(1) {
            return counts[counts.len() - 1];
        }
        if counts.len() == 10 {
            counts.pop_front();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Flushes a row at a time, `flushes` times or until it `is_enough`. If there are more than a `few` files, it waits until they are joined.
pub fn grow(flushes: usize, few: usize, is_enough: impl Fn() -> bool) -> Growth {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { gc_grace: Duration::ZERO, ..options() };
    let store = Store::open(dir.path(), spec("224"), &options).unwrap();
    let (mut most_files, mut done) = (0, 0);
    while done < flushes && !is_enough() {
        assert_eq!(get_or_compute(&store, &[&format!("id{done}")]), 1);
        store.flush().unwrap();
        if done % 50 == 0 {
            most_files = most_files.max(files_after_upkeep(&store, dir.path(), few));
        }
        done += 1;
    }
    drop(store);
    let store = Store::open(dir.path(), spec("224"), &options).unwrap();
    let ids: Vec<String> = (0..done).map(|number| format!("id{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let findings = judge(&lookup(&store, &ids), &ids);
    Growth { flushes: done, most_files, findings, stats: store.stats() }
}
