//! A cache that grows by small flushes for a long time.

use std::time::Duration;

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

/// Flushes a row at a time, so many times or until it `is_enough`.
pub fn grow(flushes: usize, is_enough: impl Fn() -> bool) -> Growth {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { gc_grace: Duration::ZERO, ..options() };
    let store = Store::open(dir.path(), spec("224"), &options).unwrap();
    let (mut most_files, mut done) = (0, 0);
    while done < flushes && !is_enough() {
        assert_eq!(get_or_compute(&store, &[&format!("id{done}")]), 1);
        store.flush().unwrap();
        if done % 50 == 0 {
            store.collect(Duration::ZERO).unwrap();
            most_files = most_files.max(files(dir.path(), "").len());
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
