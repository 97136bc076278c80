//! A process that reads random rows until its standard input ends, and one that adds rows and joins them until then.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tcx_store::{Options, Store};

use super::{ids, refused, say};
use crate::endure::durable;
use crate::{Dice, Findings, get_or_compute, judge, lookup, spec};

/// Rows of a batch, and how many others a reader asks for that the writer adds about now.
const ROWS: usize = 64;
const AWAITED: usize = 8;
/// Rows of a flush of the writer, and after how many flushes it joins.
const ADDED: usize = 50;
const JOINS_AFTER: usize = 10;
/// Batches of added rows that a reader looks up at its end.
const LAST_BATCHES: usize = 20;

/// The store as a user's process opens it.
fn open(dir: &str) -> Arc<Store> {
    Store::open(Path::new(dir), spec("224"), &Options::default()).unwrap_or_else(|error| refused(&error))
}

/// Becomes true when standard input ends.
fn end_of_input() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let end = is_over.clone();
    thread::spawn(move || {
        // An error is an end, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    is_over
}

/// Reads batches of `count` rows with a pause after each, and says `ready` after the first. With `awaits`, each batch asks for
/// rows that may not be stored yet, too. Says at the end `batches N misses N`, and a line for each finding.
pub(super) fn browse(dir: &str, log: &str, count: usize, pause: u64, awaits: bool) {
    let is_over = end_of_input();
    let store = open(dir);
    let mut dice = Dice(u64::from(std::process::id()));
    let (mut findings, mut batches, mut misses, mut awaited) = (Findings::default(), 0, 0, 0);
    while batches == 0 || !is_over.load(Ordering::Relaxed) {
        let mut asked: Vec<String> = (0..ROWS).map(|_| format!("r{}", dice.roll(count))).collect();
        if awaits {
            asked.extend(ids("n", awaited, awaited + AWAITED));
        }
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let found = lookup(&store, &asked);
        let Findings { mut lost, wrong } = judge(&found, &asked);
        let before = lost.len();
        lost.retain(|id| id.starts_with('r'));
        misses += before - lost.len();
        if awaits && before == lost.len() {
            // Faster than rows are added, so that a reader mostly waits for some.
            awaited += ADDED;
        }
        findings.add(Findings { lost, wrong });
        batches += 1;
        if batches == 1 {
            say("ready");
        }
        thread::sleep(Duration::from_millis(pause));
    }
    findings.add(added(&store, log, &mut dice));
    say(&format!("batches {batches} misses {misses}"));
    findings.lost.iter().for_each(|what| say(&format!("lost {what}")));
    findings.wrong.iter().for_each(|what| say(&format!("wrong {what}")));
}

/// Looks up the last rows that the writer has made durable by its log, and random ones before them.
fn added(store: &Store, log: &str, dice: &mut Dice) -> Findings {
    let last = durable(&fs::read_to_string(log).unwrap()).into_iter().max().unwrap_or(0);
    store.refresh().unwrap();
    let mut findings = Findings::default();
    for batch in 0..LAST_BATCHES.min(last) {
        let first = if batch == 0 { last.saturating_sub(ROWS) } else { dice.roll(last) };
        let ids = ids("n", first, last.min(first + ROWS));
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        findings.add(judge(&lookup(store, &ids), &ids));
    }
    findings
}

/// Adds rows and flushes them, with a pause after each flush, and joins and removes now and then. Says `durable N`.
pub(super) fn add(dir: &str, pause: u64) {
    let is_over = end_of_input();
    let store = open(dir);
    let mut flushes = 0;
    while !is_over.load(Ordering::Relaxed) {
        let added = ids("n", flushes * ADDED, (flushes + 1) * ADDED);
        get_or_compute(&store, &added.iter().map(String::as_str).collect::<Vec<_>>());
        store.flush().unwrap();
        flushes += 1;
        say(&format!("durable {}", flushes * ADDED));
        if flushes.is_multiple_of(JOINS_AFTER) {
            store.compact().unwrap();
            store.collect(Duration::ZERO).unwrap();
        }
        thread::sleep(Duration::from_millis(pause));
    }
}
