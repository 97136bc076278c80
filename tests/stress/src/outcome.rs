//! The outcome of a trial.

use indicatif::HumanCount;
use serde_json::{Map, Value, json};
use tcx_engine_tests::Findings;

/// The findings of each kind that a report quotes.
const QUOTED: usize = 10;

/// The outcome of a trial.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    tried: u64,
    survived: u64,
    findings: Findings,
    figures: Map<String, Value>,
    skipped: Option<String>,
}

/// The numbers of a trial, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) tried: u64,
    pub(crate) survived: u64,
    pub(crate) lost: u64,
    pub(crate) wrong: u64,
    /// 1 for a skipped trial.
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.survived += other.survived;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.skipped += other.skipped;
    }
}

impl Outcome {
    /// Counts one attempt, with its findings.
    pub(crate) fn tried(&mut self, findings: Findings) {
        self.tried_many(1, findings);
    }

    /// Counts several attempts; each finding is one that did not survive.
    pub(crate) fn tried_many(&mut self, count: u64, findings: Findings) {
        let failed = (findings.lost.len() + findings.wrong.len()) as u64;
        self.tried += count;
        self.survived += count.saturating_sub(failed);
        self.findings.add(findings);
    }

    /// Adds a finding without an attempt.
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

    /// Skips the trial.
    pub(crate) fn skip(&mut self, why: impl Into<String>) {
        self.skipped = Some(why.into());
    }

    /// Ends the trial. Without an attempt or a reason it fails, since it would look like a pass.
    pub(crate) fn end(&mut self) {
        if self.tried == 0 && self.skipped.is_none() && self.findings.are_none() {
            self.wrong("nothing was tried");
        }
    }

    pub(crate) fn skipped(&self) -> Option<&str> {
        self.skipped.as_deref()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            tried: self.tried,
            survived: self.survived,
            lost: self.findings.lost.len() as u64,
            wrong: self.findings.wrong.len() as u64,
            skipped: u64::from(self.skipped.is_some()),
        }
    }

    /// Whether there are no findings; a skipped trial has none.
    pub(crate) fn is_good(&self) -> bool {
        self.findings.are_none() && self.survived == self.tried
    }

    pub(crate) fn figures(&self) -> String {
        let figures: Vec<String> =
            self.figures.iter().map(|(name, value)| format!("{name} {}", readable(value))).collect();
        figures.join(", ")
    }

    /// The first findings, each with its kind.
    pub(crate) fn quoted(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Findings { lost, wrong } = &self.findings;
        let lost = lost.iter().take(QUOTED).map(|what| ("lost", what.as_str()));
        lost.chain(wrong.iter().take(QUOTED).map(|what| ("wrong", what.as_str())))
    }

    /// All figures on one line.
    pub(crate) fn line(&self) -> String {
        match &self.skipped {
            Some(why) => format!("skipped: {why}"),
            None => format!("{} of {} survived; {}", self.survived, self.tried, self.figures()),
        }
    }

    /// For reports, and for the process that waits for this one.
    pub(crate) fn to_json(&self) -> Value {
        let Self { tried, survived, findings: Findings { lost, wrong }, figures, skipped } = self;
        json!({
            "tried": tried, "survived": survived, "lost": lost.len(), "wrong": wrong.len(),
            "figures": figures, "skipped": skipped,
            "findings": { "lost": lost, "wrong": wrong },
        })
    }

    /// Adds the outcome of another process.
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

/// Large numbers with commas, fractions with few digits.
fn readable(value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(number), _) => HumanCount(number).to_string(),
        (None, Some(number)) => format!("{number:.1}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_found_counts() {
        let mut inner = Outcome::default();
        inner.tried(Findings { lost: vec!["a".to_owned(); 2 * QUOTED], wrong: Vec::new() });
        let mut outer = Outcome::default();
        outer.add_json(&inner.to_json()).unwrap();
        assert_eq!(outer.to_json(), inner.to_json());
        assert_eq!(outer.counts().lost, 2 * QUOTED as u64);
        assert!(outer.add_json(&json!({})).is_none());
    }

    #[test]
    fn a_trial_that_has_tried_nothing_fails_unless_it_says_why() {
        let mut idle = Outcome::default();
        idle.end();
        assert!(!idle.is_good());
        let mut skipped = Outcome::default();
        skipped.skip("no such program");
        skipped.end();
        assert!(skipped.is_good());
        assert_eq!(skipped.counts(), Counts { skipped: 1, ..Counts::default() });
    }
}
