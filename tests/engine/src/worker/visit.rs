//! Everything a store can do, once, in a directory that may be a trap.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tcx_store::{Keys, Lookup, Options, Store, WhenFull};

use super::say;
use crate::hostile::{IDS, NEW};
use crate::{columns, judge, lookup, options, spec};

/// Whether an attacker has made rows up that look right.
pub(super) type AreMadeUp = bool;

/// Says `found N` of the rows that were there before, `error …` for what could not be done, and `left` at the end.
pub(super) fn run(dir: &str, made_up: AreMadeUp) {
    let full = Options { max_bytes: Some(1 << 40), when_full: WhenFull::EvictOldest, ..options() };
    if let Some(store) = open(dir, &Options { read_only: true, ..options() }) {
        say_found(&store, made_up);
    }
    if let Some(store) = open(dir, &options()) {
        say_found(&store, made_up);
        work(&store, made_up);
        say_found(&store, made_up);
    }
    // A large file may cause eviction of all rows; those that are left are right.
    if let Some(store) = open(dir, &full) {
        compute(&store, &NEW, made_up);
        tell_failure(store.flush());
    }
    say("left");
}

fn open(dir: &str, options: &Options) -> Option<std::sync::Arc<Store>> {
    Store::open(Path::new(dir), spec("224"), options).map_err(|error| tell(&error)).ok()
}

fn tell_failure(done: tcx_store::Result<()>) {
    done.unwrap_or_else(|error| tell(&error));
}

fn tell(error: &tcx_store::Error) {
    say(&format!("error {}", format!("{error:#}").replace('\n', " ")));
}

fn say_found(store: &Store, made_up: AreMadeUp) {
    let found: Vec<&str> = IDS.into_iter().filter(|id| lookup(store, &[id]).missing() == 0).collect();
    check(&lookup(store, &found), &found, made_up);
    say(&format!("found {}", found.len()));
}

fn work(store: &Store, made_up: AreMadeUp) {
    compute(store, &NEW, made_up);
    tell_failure(store.flush());
    tell_failure(store.invalidate(&Keys::text([NEW[0]], 0).unwrap()));
    tell_failure(store.invalidate_prefix(b"no such key"));
    tell_failure(store.invalidate_where(|key| key == NEW[1].as_bytes()));
    tell_failure(store.invalidate_older_than(SystemTime::UNIX_EPOCH));
    assert_eq!(lookup(store, &NEW[..2]).missing(), 2, "what was invalidated is dead");
    compute(store, &NEW, made_up);
    tell_failure(store.flush());
    tell_failure(store.refresh());
    tell_failure(store.compact());
    tell_failure(store.collect(Duration::ZERO).map(drop));
}

fn compute(store: &Store, ids: &[&str], made_up: AreMadeUp) {
    let mut rows = lookup(store, ids);
    let missing = rows.distinct_missing_positions();
    let missing_ids: Vec<&str> = missing.iter().map(|&position| ids[position]).collect();
    store.insert(&mut rows, &missing, columns(&missing_ids)).unwrap();
    check(&rows, ids, made_up);
}

/// Reads every byte of every row, and compares it.
fn check(rows: &Lookup, ids: &[&str], made_up: AreMadeUp) {
    let mut findings = judge(rows, ids);
    if made_up {
        findings.wrong.clear();
    }
    findings.assert_none();
}
