//! Processes that read, and processes that join and remove, while others write.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{open, say};
use crate::churn::{BLOCKS, Event, look};
use crate::{Dice, Findings, judge, lookup, soak_batch};

/// Looks at blocks of rows and at single rows, and says what it has found: `looks N misses N`, and a line for each finding.
pub(super) fn read(dir: &str, logs: &str, seconds: u64) {
    let store = open(dir, "224");
    let mut dice = Dice(u64::from(std::process::id()));
    let (mut findings, mut looks, mut misses) = (Findings::default(), 0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        let names: Vec<_> = fs::read_dir(logs).unwrap().map(|log| log.unwrap()).collect();
        if !names.is_empty() {
            let log = &names[dice.roll(names.len())];
            let said = || Event::parse_all(&fs::read_to_string(log.path()).unwrap());
            let (name, block) = (log.file_name().into_string().unwrap(), dice.roll(BLOCKS));
            findings.add(look(&store, &name, block, said, &mut misses));
        }
        let ids = soak_batch(&mut dice);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        findings.wrong.extend(judge(&lookup(&store, &ids), &ids).wrong);
        looks += 1;
    }
    say(&format!("looks {looks} misses {misses}"));
    findings.lost.iter().for_each(|what| say(&format!("lost {what}")));
    findings.wrong.iter().for_each(|what| say(&format!("wrong {what}")));
}

/// Joins segments and removes files; says how often.
pub(super) fn join(dir: &str, seconds: u64) {
    let store = open(dir, "224");
    let (start, mut rounds, mut removed) = (Instant::now(), 0, 0);
    let mut dice = Dice(u64::from(std::process::id()));
    while start.elapsed() < Duration::from_secs(seconds) {
        store.compact().unwrap();
        removed += store.collect(Duration::ZERO).unwrap();
        rounds += 1;
        std::thread::sleep(Duration::from_millis(dice.roll(50) as u64));
    }
    assert!(Path::new(dir).is_dir());
    say(&format!("rounds {rounds} removed {removed}"));
}
