//! Prints each figure as soon as it is measured, and writes all of them to `target/bench/index.json`.
//!
//! The columns have fixed widths: a table that fits its content could only be printed at the end, minutes later.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::Result;

/// Figures by name.
pub(crate) struct Figures {
    keys: usize,
    figures: Map<String, Value>,
}

impl Figures {
    pub(crate) fn new(keys: usize) -> Self {
        println!("{:<32} {:>10}   {keys} keys", "figure", "value");
        Self { keys, figures: Map::new() }
    }

    pub(crate) fn add(&mut self, name: &str, value: f64, note: &str) {
        println!("{name:<32} {value:>10.2}   {note}");
        self.figures.insert(name.to_owned(), json!((value * 1000.).round() / 1000.));
    }

    pub(crate) fn write(self) -> Result<()> {
        let path = crate::machine::target()?.join("index.json");
        let report = json!({
            "command": format!("cargo run --release --package tcx-engine-benches --bin index -- {}", self.keys),
            "processor": crate::machine::processor(),
            "figures": self.figures,
        });
        std::fs::write(&path, format!("{report:#}\n"))?;
        println!("written to target/bench/index.json");
        Ok(())
    }
}

/// The shortest of several times, in seconds.
pub(crate) fn best(times: &[Duration]) -> f64 {
    times.iter().min().map_or(f64::NAN, Duration::as_secs_f64)
}

/// The median of several times, in seconds.
pub(crate) fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
}

/// The mean of several times, in seconds.
pub(crate) fn mean(times: &[Duration]) -> f64 {
    times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64
}
