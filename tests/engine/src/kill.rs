//! A process that fills a cache, killed at any moment.

use std::path::Path;
use std::time::Duration;

use crate::{Findings, Workers, judge, lookup, open};

/// Kills a process that fills after so long, and looks for what it has acknowledged; tells how many rows that were.
pub fn kill_a_filler(workers: &Workers, dir: &Path, prefix: &str, moment: Duration) -> (usize, Findings) {
    let filler = workers.start("fill", dir, &[prefix, "0", "1000000"]);
    std::thread::sleep(moment);
    let said = match filler.kill() {
        Ok(said) => said,
        Err(why) => return (0, Findings::of_wrong(why)),
    };
    let durable =
        said.lines().rev().find_map(|line| line.strip_prefix("durable ")?.parse().ok()).unwrap_or(0);
    (durable, acknowledged(dir, prefix, durable))
}

/// Looks for the first rows of a prefix.
pub fn acknowledged(dir: &Path, prefix: &str, rows: usize) -> Findings {
    let ids: Vec<String> = (0..rows).map(|i| format!("{prefix}{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let store = open(dir);
    let mut findings = judge(&lookup(&store, &ids), &ids);
    if store.stats().damaged_segments > 0 {
        findings.wrong.push(format!("{prefix}: a process that was killed has left a damaged segment"));
    }
    findings
}
