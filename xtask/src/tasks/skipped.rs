//! What a run of the checks has left out: skipped tests, which report themselves to a file, and ignored tests, which the
//! harness names in its output.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use tcx_test_skips::{FILE, Skip, is_required, read};

use crate::failure::{Failure, OnPath, Result};
use crate::workspace::Workspace;

/// Collects what is left out.
pub(crate) struct LeftOut {
    file: PathBuf,
    ignored: BTreeSet<String>,
}

impl LeftOut {
    /// Nothing yet. `name` keeps the lists of this process apart.
    pub(crate) fn new(workspace: &Workspace, name: &str) -> Result<Self> {
        let folder = workspace.root().join("target/xtask");
        fs::create_dir_all(&folder).on("create the folder", &folder)?;
        let file = folder.join(format!("skips-{name}-{}.txt", std::process::id()));
        // An earlier process of this number may have been killed.
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("remove", &file)?,
            _ => {}
        }
        Ok(Self { file, ignored: BTreeSet::new() })
    }

    /// Adds what `command` leaves out when it runs.
    pub(crate) fn watch(&self, command: &mut Command) {
        command.env(FILE, &self.file);
    }

    /// Adds a skip that no test reports.
    pub(crate) fn add(&mut self, what: &str, why: &str) -> Result<()> {
        let mut file =
            fs::File::options().create(true).append(true).open(&self.file).on("open", &self.file)?;
        writeln!(file, "{what}\t\t{}", why.replace('\n', " ")).on("write", &self.file)
    }

    /// As [`add`](Self::add); where `TCX_REQUIRE` contains `what`, that is a failure.
    pub(crate) fn leave_out(&mut self, what: &str, why: &str) -> Result<()> {
        if is_required(what) {
            return Err(Failure::new(format!("`TCX_REQUIRE` contains {what} or all, but {why}")));
        }
        self.add(what, why)
    }

    /// Runs a `cargo test`, and prints its output as it comes.
    pub(crate) fn run_tests(&mut self, command: &mut Command) -> io::Result<ExitStatus> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line)? > 0 {
                io::stdout().write_all(&line)?;
                self.ignored.extend(ignored(&String::from_utf8_lossy(&line)));
                line.clear();
            }
        }
        child.wait()
    }

    /// The list for people.
    pub(crate) fn list(&self) -> Result<String> {
        let skips = read(&self.file).on("read", &self.file)?;
        Ok(list(&skips, &self.ignored))
    }
}

impl Drop for LeftOut {
    fn drop(&mut self) {
        // A leftover costs nothing: its name has the number of this process.
        let _ = fs::remove_file(&self.file);
    }
}

/// The test that a line of the harness calls ignored, and its reason.
fn ignored(line: &str) -> Option<String> {
    let (name, rest) = line.trim_end().strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = rest.strip_prefix(", ").map_or(String::new(), |reason| format!(": {reason}"));
    Some(format!("{name}{reason}"))
}

fn list(skips: &[Skip], ignored: &BTreeSet<String>) -> String {
    let mut lines = Vec::new();
    lines.push(if skips.is_empty() { "skipped: none".to_owned() } else { "skipped:".to_owned() });
    for Skip { what, why, tests } in skips {
        let tests = if tests.is_empty() { String::new() } else { format!(" ({})", tests.join(", ")) };
        lines.push(format!("  {what}: {why}{tests}"));
    }
    lines.push(if ignored.is_empty() { "ignored: none".to_owned() } else { "ignored:".to_owned() });
    lines.extend(ignored.iter().map(|test| format!("  {test}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_leaves_nothing_out_says_so() {
        assert_eq!(list(&[], &BTreeSet::new()), "skipped: none\nignored: none");
    }

    #[test]
    fn skips_and_ignored_tests_are_listed_with_their_reasons() {
        let mut left_out = LeftOut::new(&Workspace::find().unwrap(), "list").unwrap();
        left_out.add("pyarrow", "no Python\nis found").unwrap();
        let script =
            "echo 'test a::b ... ok'; echo 'test a::c ... ignored, takes long'; echo 'test d ... ignored'
            printf 'rsync\\tcopies\\trsync is not installed\\n' >> \"$TCX_SKIPS\"; exit 3";
        let mut tests = Command::new("sh");
        left_out.watch(tests.args(["-c", script]));
        assert_eq!(left_out.run_tests(&mut tests).unwrap().code(), Some(3));
        let expected = "skipped:\n  pyarrow: no Python is found\n  rsync: rsync is not installed (copies)\n\
                        ignored:\n  a::c: takes long\n  d";
        assert_eq!(left_out.list().unwrap(), expected);
    }
}
