//! What a process says that goes on whatever the disk does, and what has to be there afterwards.

use std::path::Path;

use crate::{Findings, judge, lookup, open};

/// Rows of a batch.
pub const BATCH: usize = 200;

/// The batches that a worker has called durable.
pub fn durable(said: &str) -> Vec<usize> {
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    whole.lines().filter_map(|line| line.strip_prefix("durable ")?.parse().ok()).collect()
}

/// How many batches a worker has called failed.
pub fn failed(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("failed ")).count()
}

/// Looks for the rows of these batches.
pub fn acknowledged(dir: &Path, prefix: &str, batches: &[usize]) -> Findings {
    let store = open(dir);
    let mut findings = Findings::default();
    for batch in batches {
        let ids: Vec<String> = (0..BATCH).map(|row| format!("{prefix}{batch}/{row}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        findings.add(judge(&lookup(&store, &ids), &ids));
    }
    if store.stats().damaged_segments > 0 {
        findings.wrong.push("a segment is damaged".to_owned());
    }
    findings
}
