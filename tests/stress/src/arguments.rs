//! `stress [--minutes M] [--only NAME]… [--fuzzer PROGRAM] [--report FILE]`

use std::path::PathBuf;

use tcx_engine_tests::Workers;

/// The arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Arguments {
    /// The maximum time of all trials together.
    pub(crate) minutes: f64,
    only: Vec<String>,
    /// The program of `fuzz/`, if it could be built.
    pub(crate) fuzzer: Option<PathBuf>,
    /// The file of the report: Markdown if the name ends with `.md`, else as JSON, in place of
    /// `target/stress/report.json`.
    pub(crate) report: Option<PathBuf>,
}

impl Arguments {
    /// Parses the words, or names the one that is wrong.
    pub(crate) fn parse(words: &[String], trials: &[&str]) -> Result<Self, String> {
        let mut arguments = Self { minutes: 60.0, only: Vec::new(), fuzzer: None, report: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--minutes" => arguments.minutes = minutes(&value()?)?,
                "--only" => arguments.only.push(known(value()?, trials)?),
                "--fuzzer" => arguments.fuzzer = Some(value()?.into()),
                "--report" => arguments.report = Some(value()?.into()),
                other => {
                    return Err(format!(
                        "expected `--minutes M`, `--only TRIAL` or `--report FILE`, found `{other}`"
                    ));
                }
            }
        }
        Ok(arguments)
    }

    /// Whether this trial is chosen.
    pub(crate) fn wants(&self, trial: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == trial)
    }

    /// The command line to repeat the run on another machine.
    pub(crate) fn command(&self) -> String {
        let mut words = vec!["cargo xtask stress --minutes".to_owned(), self.minutes.to_string()];
        words.extend(self.only.iter().map(|name| format!("--only {name}")));
        let report = self.report.iter().filter(|report| report.is_relative());
        words.extend(report.map(|report| format!("--report {}", report.display())));
        words.join(" ")
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| minutes.is_finite() && *minutes > 0.0);
    minutes.ok_or_else(|| format!("`--minutes` needs a number above 0, found `{text}`"))
}

fn known(name: String, trials: &[&str]) -> Result<String, String> {
    if trials.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(format!("no trial has the name `{name}`, expected one of {}", trials.join(", ")))
}

/// How this program starts itself as a worker.
pub(crate) fn workers() -> Workers {
    Workers::new([std::env::current_exe().unwrap(), "worker".into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words, &["kill", "keys"])
    }

    #[test]
    fn arguments_are_understood() {
        let hour = parse("").unwrap();
        assert!(hour.wants("kill") && hour.wants("keys"));
        assert_eq!(hour.command(), "cargo xtask stress --minutes 60");
        let some = parse("--minutes 2.5 --only keys").unwrap();
        assert!(!some.wants("kill") && some.wants("keys"));
        assert_eq!(some.command(), "cargo xtask stress --minutes 2.5 --only keys");
        let command = |line| parse(line).unwrap().command();
        let checked_in = "cargo xtask stress --minutes 60 --report docs/stress.md";
        assert_eq!(command("--report docs/stress.md"), checked_in);
        assert_eq!(command("--report /home/me/stress.md"), "cargo xtask stress --minutes 60");
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("--minutes").unwrap_err().contains("`--minutes` needs a value"));
        assert!(parse("--minutes -1").unwrap_err().contains("found `-1`"));
        assert!(parse("--only kil").unwrap_err().contains("`kil`, expected one of kill, keys"));
        assert!(parse("--fast").unwrap_err().contains("`--fast`"));
    }
}
