//! Reports a test that cannot run on this machine: a skip, or a failure where the test is required.
//!
//! The variable `TCX_REQUIRE` holds what tests must not skip, separated by commas, or `all`. The variable `TCX_SKIPS` names
//! a file that collects the skips of a whole run: a harness hides what a passing test prints, and `cargo xtask test` shows
//! this file at its end.

use std::env;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;

/// The variable that names the file for skips.
pub const FILE: &str = "TCX_SKIPS";

/// Skips the test that needs `what`.
///
/// # Panics
///
/// If `TCX_REQUIRE` contains `what` or `all`.
pub fn skip(what: &str, why: impl Display) {
    assert!(!is_required(what), "`TCX_REQUIRE` contains {what} or all, but {why}");
    record(what, &why.to_string());
}

/// Skips the test that needs `what`, of which `all` is no requirement: another command runs this test.
///
/// # Panics
///
/// If `TCX_REQUIRE` contains `what`.
pub fn skip_here(what: &str, why: impl Display) {
    assert!(!is_named(&require(), what), "`TCX_REQUIRE` contains {what}, but {why}");
    record(what, &why.to_string());
}

/// Whether `TCX_REQUIRE` makes the absence of `what` a failure.
pub fn is_required(what: &str) -> bool {
    let require = require();
    is_named(&require, what) || is_named(&require, "all")
}

/// The value of `TCX_REQUIRE` for a program that must not skip `what` either, a list like it.
pub fn require_also(what: &str) -> String {
    with(&require(), what)
}

fn with(list: &str, what: &str) -> String {
    if list.is_empty() { what.to_owned() } else { format!("{list},{what}") }
}

fn require() -> String {
    env::var("TCX_REQUIRE").unwrap_or_default()
}

fn is_named(list: &str, what: &str) -> bool {
    list.split(',').any(|name| name.trim() == what)
}

/// One test, or several that were skipped for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// What is missing.
    pub what: String,
    /// Why the tests were skipped.
    pub why: String,
    /// The names of the tests.
    pub tests: Vec<String>,
}

/// Prints the skip, and adds it to the file that `TCX_SKIPS` names.
fn record(what: &str, why: &str) {
    eprintln!("skipped: {why}");
    let Some(file) = env::var_os(FILE) else { return };
    let thread = thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or_default();
    if let Err(error) = append(Path::new(&file), what, test, why) {
        // A skip that is missing from the list would look like a pass.
        panic!("cannot record a skip in {}: {error}", Path::new(&file).display());
    }
}

/// One write for the whole line: tests of several processes append to the same file.
fn append(file: &Path, what: &str, test: &str, why: &str) -> io::Result<()> {
    let [what, test, why] = [what, test, why].map(|part| part.replace(['\t', '\n'], " "));
    let mut file = File::options().create(true).append(true).open(file)?;
    file.write_all(format!("{what}\t{test}\t{why}\n").as_bytes())
}

/// The skips in a file, in order and those with one reason together; none if the file does not exist.
///
/// # Errors
///
/// If the file cannot be read.
pub fn read(file: &Path) -> io::Result<Vec<Skip>> {
    let content = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        content => content?,
    };
    let mut skips: Vec<Skip> = Vec::new();
    for line in content.lines() {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        let [what, test, why] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let same = skips.iter_mut().find(|skip| skip.what == what && skip.why == why);
        let tests = same.map(|skip| &mut skip.tests);
        match tests {
            Some(tests) => tests.push(test),
            None => skips.push(Skip { what, why, tests: vec![test] }),
        }
    }
    for skip in &mut skips {
        skip.tests.retain(|test| !test.is_empty());
        skip.tests.sort();
        skip.tests.dedup();
    }
    skips.sort();
    Ok(skips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_is_a_list_or_all() {
        assert!(is_named("pyarrow, valgrind", "valgrind") && is_named("all", "all"));
        assert!(!is_named("", "all") && !is_named("pyarrow", "py"));
    }

    #[test]
    fn what_a_program_must_not_skip_is_added_to_what_is_required() {
        let both = with("all", "ray,dask");
        assert!(is_named(&both, "all") && is_named(&both, "dask"));
        assert_eq!(with("", "ray,dask"), "ray,dask");
    }

    #[test]
    fn skips_with_one_reason_are_listed_together() {
        let name = format!("tcx-test-skips-{}", std::process::id());
        let file = env::temp_dir().join(name);
        assert_eq!(read(&file).unwrap(), []);
        append(&file, "rsync", "b", "rsync is not\ninstalled").unwrap();
        append(&file, "pyarrow", "a", "no Python").unwrap();
        append(&file, "pyarrow", "", "no Python").unwrap();
        append(&file, "pyarrow", "c", "no Python").unwrap();
        let skips = read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let skip = |what: &str, why: &str, tests: &[&str]| Skip {
            what: what.to_owned(),
            why: why.to_owned(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let together = skip("pyarrow", "no Python", &["a", "c"]);
        assert_eq!(skips, [together, skip("rsync", "rsync is not installed", &["b"])]);
    }
}
