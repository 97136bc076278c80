//! The table at the end, and `target/stress/report.json`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tcx_engine_tests::Findings;

use crate::arguments::Arguments;
use crate::machine;

/// So many findings of a trial are told in full.
const TOLD: usize = 10;

/// What came of a trial.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    tried: u64,
    survived: u64,
    findings: Findings,
    figures: Map<String, Value>,
    skipped: Option<String>,
}

impl Outcome {
    /// Something was tried; nothing must be found.
    pub(crate) fn tried(&mut self, findings: Findings) {
        self.tried_many(1, findings);
    }

    /// So much was tried at once; each finding is one that did not survive.
    pub(crate) fn tried_many(&mut self, count: u64, findings: Findings) {
        let failed = (findings.lost.len() + findings.wrong.len()) as u64;
        self.tried += count;
        self.survived += count.saturating_sub(failed);
        self.findings.add(findings);
    }

    /// Something that must not be, beside what was tried.
    pub(crate) fn wrong(&mut self, what: impl Into<String>) {
        self.findings.wrong.push(what.into());
    }

    pub(crate) fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    /// Adds to a figure.
    pub(crate) fn count(&mut self, name: &str, more: usize) {
        let before = self.figures.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.figure(name, before + more as u64);
    }

    /// It cannot be tried here.
    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        self.skipped = Some(why.into());
    }

    fn is_good(&self) -> bool {
        self.findings.are_none() && self.survived == self.tried
    }

    fn figures(&self) -> String {
        let figures: Vec<String> =
            self.figures.iter().map(|(name, value)| format!("{name} {}", told(value))).collect();
        figures.join(", ")
    }

    /// All of it in a line.
    pub(crate) fn line(&self) -> String {
        match &self.skipped {
            Some(why) => format!("skipped: {why}"),
            None => format!("{} of {} survived; {}", self.survived, self.tried, self.figures()),
        }
    }

    /// For the process that waits for this one.
    pub(crate) fn to_json(&self) -> Value {
        let Self { tried, survived, findings: Findings { lost, wrong }, figures, skipped } = self;
        json!({
            "tried": tried, "survived": survived, "lost": lost.len(), "wrong": wrong.len(),
            "figures": figures, "skipped": skipped,
            "findings": { "lost": first(lost), "wrong": first(wrong) },
        })
    }

    /// Takes in what another process has made of the trial.
    pub(crate) fn add_json(&mut self, other: &Value) -> Option<()> {
        let number = |name: &str| other.get(name)?.as_u64();
        let texts = |name: &str| {
            let texts = other.get("findings")?.get(name)?.as_array()?.iter();
            Some(texts.filter_map(|text| Some(text.as_str()?.to_owned())).collect::<Vec<_>>())
        };
        self.tried += number("tried")?;
        self.survived += number("survived")?;
        self.findings.add(Findings { lost: texts("lost")?, wrong: texts("wrong")? });
        self.figures.extend(other.get("figures")?.as_object()?.clone());
        Some(())
    }
}

fn first(findings: &[String]) -> &[String] {
    &findings[..findings.len().min(TOLD)]
}

/// Large numbers with commas, fractions with few digits.
fn told(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(number), _) => with_commas(number),
        (None, Some(number)) => format!("{number:.1}"),
        _ => value.to_string(),
    }
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The outcomes of all trials.
pub(crate) struct Report {
    command: String,
    path: PathBuf,
    trials: Vec<(&'static str, Outcome, Duration)>,
}

impl Report {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        let path = arguments.report.clone().unwrap_or_else(|| machine::target().join("report.json"));
        Self { command: arguments.command(), path, trials: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &'static str, outcome: Outcome, took: Duration) {
        self.trials.push((name, outcome, took));
    }

    /// Prints and writes everything; whether all is as it should be.
    pub(crate) fn write(&self) -> bool {
        println!("\n{}", self.table());
        std::fs::write(&self.path, format!("{:#}\n", self.to_json())).unwrap();
        println!("\nwritten to {}", self.path.display());
        self.trials.iter().all(|(_, outcome, _)| outcome.is_good())
    }

    fn table(&self) -> String {
        let columns = ["tried", "survived", "lost", "wrong", "seconds"].map(str::to_owned);
        let mut lines = vec![row("trial", &columns, "figures")];
        for (name, outcome, took) in &self.trials {
            let Findings { lost, wrong } = &outcome.findings;
            let seconds = format!("{:.1}", took.as_secs_f64());
            let counts = [outcome.tried, outcome.survived, lost.len() as u64, wrong.len() as u64];
            let [tried, survived, lost, wrong] = counts.map(with_commas);
            lines.push(match &outcome.skipped {
                Some(why) => format!("{name:<8} skipped: {why}"),
                None => row(name, &[tried, survived, lost, wrong, seconds], &outcome.figures()),
            });
        }
        for (name, outcome, _) in &self.trials {
            let Findings { lost, wrong } = &outcome.findings;
            lines.extend(first(lost).iter().map(|what| format!("\n{name}: lost: {what}")));
            lines.extend(first(wrong).iter().map(|what| format!("\n{name}: wrong: {what}")));
        }
        lines.join("\n")
    }

    fn to_json(&self) -> Value {
        let trials = self.trials.iter().map(|(name, outcome, took)| {
            let mut trial = outcome.to_json();
            trial["seconds"] = json!((took.as_secs_f64() * 10.0).round() / 10.0);
            ((*name).to_owned(), trial)
        });
        json!({
            "command": self.command,
            "processor": machine::processor(),
            "cores": machine::cores(),
            "trials": trials.collect::<Map<_, _>>(),
        })
    }
}

fn row(name: &str, [tried, survived, lost, wrong, seconds]: &[String; 5], figures: &str) -> String {
    format!("{name:<8} {tried:>12} {survived:>12} {lost:>6} {wrong:>6} {seconds:>8}  {figures}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_makes_the_whole_fail_and_is_told() {
        let mut outcome = Outcome::default();
        outcome.tried(Findings::default());
        outcome.figure("events", 1_234_567_u64);
        assert!(outcome.is_good());
        outcome.tried(Findings::of_wrong("row 7"));
        assert!(!outcome.is_good());
        let mut report = Report { command: "stress".to_owned(), path: PathBuf::new(), trials: Vec::new() };
        report.add("kill", outcome, Duration::from_secs(3));
        let table = report.table();
        assert!(table.contains("1,234,567") && table.contains("kill: wrong: row 7"), "{table}");
        let trial = &report.to_json()["trials"]["kill"];
        assert_eq!((&trial["tried"], &trial["survived"], &trial["wrong"]), (&json!(2), &json!(1), &json!(1)));
    }

    #[test]
    fn what_another_process_found_counts() {
        let mut inner = Outcome::default();
        inner.tried(Findings { lost: vec!["a".to_owned()], wrong: Vec::new() });
        let mut outer = Outcome::default();
        outer.add_json(&inner.to_json()).unwrap();
        assert_eq!(outer.to_json(), inner.to_json());
        assert!(outer.add_json(&json!({})).is_none());
    }
}
