//! Collects the figures, prints them, and writes them to `target/bench/report.json` and `target/bench/report.md`.

mod epochs;
mod floors;
#[cfg(feature = "full")]
mod plot;
mod reach;

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{Result, machine};

/// Rounds of each measurement; the median counts.
pub(crate) const ROUNDS: usize = 5;

/// Figures by name, in order, and the reasons for skipped ones.
#[derive(Default)]
pub(crate) struct Figures {
    values: Vec<(String, f64)>,
    skipped: Vec<String>,
}

impl Figures {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), (value * 1000.).round() / 1000.));
    }

    /// How much faster `ours` is than `other`: the ratio of the medians.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, other: &[Duration], ours: &[Duration]) {
        self.add(name, median(other) / median(ours));
    }

    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        self.skipped.push(why.into());
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
        self.skipped.extend(other.skipped);
    }

    /// Why figures are missing.
    pub(crate) fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(String::as_str)
    }

    /// The figures whose names begin with `start`, with the rest of their names.
    pub(crate) fn under<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.values.iter().filter_map(move |(name, value)| Some((name.strip_prefix(start)?, *value)))
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "values": self.values, "skipped": self.skipped })
    }

    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)?;
        let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_f64()?));
        let values = json["values"].as_array().ok_or("no figures")?.iter().filter_map(pair).collect();
        let skipped = json["skipped"].as_array().ok_or("no figures")?;
        let skipped = skipped.iter().filter_map(|why| Some(why.as_str()?.to_owned())).collect();
        Ok(Self { values, skipped })
    }
}

/// The place for figures in `docs/performance.md`.
#[cfg(feature = "full")]
const BEGIN: &str = "<!-- figures of `cargo xtask bench` -->";
#[cfg(feature = "full")]
const END: &str = "<!-- end of the figures -->";

/// All figures of a run.
pub(crate) struct Report {
    figures: Figures,
    command: &'static str,
    #[cfg_attr(
        not(feature = "full"),
        expect(dead_code, reason = "only the whole program refreshes docs/performance.md")
    )]
    quick: bool,
    is_checked: bool,
}

impl Report {
    /// A whole run is checked, too.
    pub(crate) fn new(figures: Figures, quick: bool, is_checked: bool) -> Self {
        let command = match (quick, is_checked) {
            (false, _) => "cargo xtask bench",
            (true, false) => "cargo xtask bench --quick",
            (true, true) => "cargo xtask bench --check",
        };
        Self { figures, command, quick, is_checked }
    }

    /// Writes and prints the figures, and compares them with their floors. Returns whether none is worse.
    pub(crate) fn write(&self) -> Result<bool> {
        let target = machine::target()?;
        let values: Map<String, Value> =
            self.figures.values.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let report = json!({
            "command": self.command,
            "machine": machine::describe(),
            "figures": values,
            "skipped": self.figures.skipped,
        });
        std::fs::write(target.join("report.json"), format!("{report:#}\n"))?;
        let table = self.table(|_| true) + &self.skipped();
        print!("{table}");
        std::fs::write(target.join("report.md"), table)?;
        if let Some(picture) = epochs::picture(&self.figures) {
            std::fs::write(target.join("epochs.svg"), picture)?;
        }
        #[cfg(feature = "full")]
        {
            plot::write(&self.figures, &target)?;
            if !self.quick {
                self.refresh_document(&target)?;
            }
        }
        println!("\nwritten to target/bench");
        Ok(!self.is_checked || self.is_above_floors())
    }

    fn is_above_floors(&self) -> bool {
        let floors::Check { table, failed } = floors::check(&self.figures);
        println!("\n{table}");
        if failed.is_empty() {
            println!("no figure is worse than its floor");
        } else {
            println!("missing or worse than their floors: {}", failed.join(", "));
        }
        failed.is_empty()
    }

    /// Writes the figures with a goal into `docs/performance.md`, and the pictures beside the documents.
    #[cfg(feature = "full")]
    fn refresh_document(&self, target: &std::path::Path) -> Result<()> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pictures = root.join("docs/bench");
        std::fs::create_dir_all(&pictures)?;
        for picture in ["epochs.svg", "w1.svg", "w2.svg", "growth.svg"] {
            std::fs::copy(target.join(picture), pictures.join(picture))?;
        }
        let path = root.join("docs/performance.md");
        let document = std::fs::read_to_string(&path)?;
        let (before, rest) =
            document.split_once(BEGIN).ok_or("docs/performance.md has no place for figures")?;
        let (_, after) =
            rest.split_once(END).ok_or("the place for figures in docs/performance.md has no end")?;
        let table = self.table(|name| reach::of(name).is_some());
        std::fs::write(path, format!("{before}{BEGIN}\n{table}{END}{after}"))?;
        Ok(())
    }

    fn table(&self, is_shown: impl Fn(&str) -> bool) -> String {
        let mut out = format!("`{}`, {}\n\n", self.command, machine::describe());
        out.push_str("| figure | value | wanted | |\n|---|---:|---:|---|\n");
        for (name, value) in self.figures.values.iter().filter(|(name, _)| is_shown(name)) {
            let (reach, met) = match reach::of(name) {
                Some(reach) => (reach.to_string(), if reach.is_met(*value) { "met" } else { "not met" }),
                None => Default::default(),
            };
            let _ = writeln!(out, "| `{name}` | {value} | {reach} | {met} |");
        }
        out
    }

    fn skipped(&self) -> String {
        let mut out = String::new();
        for why in &self.figures.skipped {
            let _ = writeln!(out, "\nSkipped: {why}.");
        }
        out
    }
}

/// The time that this share of the times does not exceed, in seconds.
pub(crate) fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    let rank = (times.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, Duration::as_secs_f64)
}

/// The median, in seconds.
pub(crate) fn median(times: &[Duration]) -> f64 {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
