//! The table at the end, `target/stress/report.json`, and the report in Markdown that `--report` asks for.

use std::path::PathBuf;
use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use indicatif::HumanCount;
use serde_json::{Map, Value, json};
use tcx_test_skips::is_required;

use crate::arguments::Arguments;
use crate::machine;
use crate::outcome::{Counts, Outcome};

/// The outcomes of all trials.
pub(crate) struct Report {
    command: String,
    json: PathBuf,
    markdown: Option<PathBuf>,
    trials: Vec<(&'static str, Outcome, Duration)>,
}

impl Report {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        let given = arguments.report.clone();
        let is_markdown = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
        let json = given.clone().filter(|file| !is_markdown(file));
        Self {
            command: arguments.command(),
            json: json.unwrap_or_else(|| machine::target().join("report.json")),
            markdown: given.filter(is_markdown),
            trials: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, name: &'static str, outcome: Outcome, took: Duration) {
        self.trials.push((name, outcome, took));
    }

    /// Prints and writes the report; returns whether all trials passed.
    pub(crate) fn write(&self) -> bool {
        println!("\n{}", self.table());
        let markdown = self.markdown.iter().map(|file| (file, self.markdown()));
        for (file, text) in [(&self.json, format!("{:#}\n", self.to_json()))].into_iter().chain(markdown) {
            std::fs::write(file, text).unwrap();
            println!("\nwritten to {}", file.display());
        }
        println!("\n{}", self.summary());
        self.is_good(is_required)
    }

    /// Whether there are no findings and no required trial was skipped.
    fn is_good(&self, is_required: impl Fn(&str) -> bool) -> bool {
        self.trials.iter().all(|(name, outcome, _)| {
            outcome.is_good() && (outcome.skipped().is_none() || !is_required(name))
        })
    }

    fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.trials.iter().for_each(|(_, outcome, _)| total.add(outcome.counts()));
        total
    }

    /// The line with the verdict.
    fn summary(&self) -> String {
        let Counts { lost, wrong, skipped, .. } = self.total();
        let names = self.trials.iter().filter(|(_, outcome, _)| outcome.skipped().is_some());
        let names: Vec<&str> = names.map(|(name, ..)| *name).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!("lost {}, wrong {}, skipped {skipped}{names}", HumanCount(lost), HumanCount(wrong))
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(["trial", "tried", "survived", "lost", "wrong", "seconds", "figures"]);
        for (name, outcome, took) in &self.trials {
            let numbers = match outcome.skipped() {
                Some(_) => Default::default(),
                None => numbers(outcome, *took),
            };
            let figures =
                outcome.skipped().map_or_else(|| outcome.figures(), |why| format!("skipped: {why}"));
            table.add_row([&[(*name).to_owned()], &numbers[..], &[figures]].concat());
        }
        table
            .column_iter_mut()
            .skip(1)
            .take(5)
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let mut lines = vec![table.trim_fmt()];
        for (name, outcome, _) in &self.trials {
            lines.extend(outcome.quoted().map(|(kind, what)| format!("\n{name}: {kind}: {what}")));
        }
        lines.join("\n")
    }

    /// Without a date, a name of the machine or a path: the report is checked in.
    fn markdown(&self) -> String {
        let commit = machine::commit().map_or(String::new(), |commit| format!(" (commit {commit})"));
        let mut lines = vec![
            "# The stress report\n".to_owned(),
            format!("```sh\n{}\n```\n", self.command),
            format!("On {},\ntcx {}{commit}.\n", machine::description(), env!("CARGO_PKG_VERSION")),
            format!("**{}.**\n", self.summary()),
            "| trial | tried | survived | lost | wrong | seconds | figures |".to_owned(),
            "|---|--:|--:|--:|--:|--:|---|".to_owned(),
        ];
        for (name, outcome, took) in &self.trials {
            let numbers = numbers(outcome, *took).join(" | ");
            lines.push(match outcome.skipped() {
                Some(why) => format!("| `{name}` | | | | | | skipped: {} |", cell(why)),
                None => format!("| `{name}` | {numbers} | {} |", cell(&outcome.figures())),
            });
        }
        for (name, outcome, _) in &self.trials {
            lines.extend(outcome.quoted().map(|(kind, what)| format!("\n`{name}`, {kind}: {}", cell(what))));
        }
        lines.join("\n") + "\n"
    }

    fn to_json(&self) -> Value {
        let trials = self.trials.iter().map(|(name, outcome, took)| {
            let mut trial = outcome.to_json();
            trial["seconds"] = json!((took.as_secs_f64() * 10.0).round() / 10.0);
            ((*name).to_owned(), trial)
        });
        let Counts { lost, wrong, skipped, .. } = self.total();
        json!({
            "command": self.command,
            "processor": machine::processor(),
            "cores": machine::cores(),
            "lost": lost,
            "wrong": wrong,
            "skipped": skipped,
            "trials": trials.collect::<Map<_, _>>(),
        })
    }
}

/// Escapes the characters that would end the cell.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}

fn numbers(outcome: &Outcome, took: Duration) -> [String; 5] {
    let Counts { tried, survived, lost, wrong, .. } = outcome.counts();
    let [tried, survived, lost, wrong] =
        [tried, survived, lost, wrong].map(|count| HumanCount(count).to_string());
    [tried, survived, lost, wrong, format!("{:.1}", took.as_secs_f64())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcx_engine_tests::Findings;

    fn report(trials: Vec<(&'static str, Outcome)>) -> Report {
        let took = Duration::from_secs(3);
        let trials = trials.into_iter().map(|(name, outcome)| (name, outcome, took)).collect();
        Report { command: "stress".to_owned(), json: PathBuf::new(), markdown: None, trials }
    }

    fn passed() -> Outcome {
        let mut outcome = Outcome::default();
        outcome.tried(Findings::default());
        outcome.figure("events", 1_234_567_u64);
        outcome
    }

    fn skipped() -> Outcome {
        let mut outcome = Outcome::default();
        outcome.skip("no | program");
        outcome
    }

    #[test]
    fn a_finding_makes_the_whole_fail_and_is_quoted() {
        let mut outcome = passed();
        assert!(outcome.is_good());
        outcome.tried(Findings::of_wrong("row 7"));
        let report = report(vec![("kill", outcome)]);
        assert!(!report.is_good(|_| false));
        let table = report.table();
        assert!(table.contains("1,234,567") && table.contains("kill: wrong: row 7"), "{table}");
        let trial = &report.to_json()["trials"]["kill"];
        assert_eq!((&trial["tried"], &trial["survived"], &trial["wrong"]), (&json!(2), &json!(1), &json!(1)));
        assert_eq!(report.summary(), "lost 0, wrong 1, skipped 0");
    }

    #[test]
    fn a_skipped_trial_is_counted_and_fails_where_it_is_required() {
        let report = report(vec![("kill", passed()), ("full", skipped())]);
        assert_eq!(report.summary(), "lost 0, wrong 0, skipped 1 (full)");
        assert_eq!(report.to_json()["skipped"], 1);
        assert!(report.is_good(|_| false) && report.is_good(|name| name == "kill"));
        assert!(!report.is_good(|name| name == "full"));
    }

    #[test]
    fn markdown_has_the_command_the_summary_and_each_trial() {
        let markdown = report(vec![("kill", passed()), ("full", skipped())]).markdown();
        for expected in [
            "```sh\nstress\n```\n",
            "**lost 0, wrong 0, skipped 1 (full).**\n",
            "\n| `kill` | 1 | 1 | 0 | 0 | 3.0 | events 1,234,567 |\n",
            "\n| `full` | | | | | | skipped: no \\| program |\n",
        ] {
            assert!(markdown.contains(expected), "{markdown}");
        }
    }
}
