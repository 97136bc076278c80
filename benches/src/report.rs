//! The figures: on the screen as they come, and in `target/bench/report.json`.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// Rounds of each measurement; the median counts.
pub(crate) const ROUNDS: usize = 5;

/// Figures by name.
pub(crate) struct Report {
    figures: Map<String, Value>,
}

impl Report {
    pub(crate) fn new() -> Self {
        println!("{:<32} {:>7}   medians of {ROUNDS} rounds", "figure", "ratio");
        Self { figures: Map::new() }
    }

    /// How much faster `ours` is than the limit: the ratio of the medians.
    pub(crate) fn ratio(&mut self, name: &str, limit: &[Duration], ours: &[Duration]) {
        let (limit, ours) = (median(limit), median(ours));
        let ratio = limit / ours;
        println!("{name:<32} {ratio:>7.2}   {:.0} ms against {:.0} ms", ours * 1e3, limit * 1e3);
        self.figures.insert(name.to_owned(), json!((ratio * 1000.).round() / 1000.));
    }

    pub(crate) fn write(self) -> std::io::Result<()> {
        let path = crate::machine::target()?.join("report.json");
        let report = json!({
            "command": "cargo xtask bench --quick",
            "processor": crate::machine::processor(),
            "figures": self.figures,
        });
        std::fs::write(&path, format!("{report:#}\n"))?;
        println!("written to target/bench/report.json");
        Ok(())
    }
}

fn median(times: &[Duration]) -> f64 {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
