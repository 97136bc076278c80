//! The instructions of the store's hot paths, counted by callgrind and compared with those that are checked in.
//!
//! callgrind runs a processor of its own making, the same wherever the machine has what it imitates, so that the
//! libraries choose the same code for it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tcx_test_skips::{is_required, skip, skip_here};

use crate::failure::{Failure, Result};
use crate::process;
use crate::workspace::{Workspace, cargo};

/// The functions of the program `counts`.
const PATHS: [&str; 2] = ["read_path", "write_path"];
/// More than this above what is checked in is a failure.
const TOLERANCE: f64 = 1.05;
/// Less than this of what is checked in is one as well: the path was not run, or the counts say nothing about it any more.
const AT_LEAST: f64 = 0.5;

/// Counts and compares. Without valgrind that is skipped, or a failure where `TCX_REQUIRE` contains `valgrind`; with
/// `TCX_BLESS=1` the counts are checked in.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        skip_here(
            "x86-64",
            "the instructions of the hot paths are not compared: the checked-in counts are for x86-64",
        );
        return Ok(());
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        let message = "the instructions of the hot paths are not compared: valgrind is not installed";
        if is_required("valgrind") {
            return Err(Failure::new(message));
        }
        skip("valgrind", message);
        return Ok(());
    }
    let mut build = cargo("build");
    build.args(["--release", "--package", "tcx-engine-benches", "--bin", "counts"]);
    process::run(build.current_dir(workspace.root()), "building the program that is counted")?;
    let program = program(workspace.root(), env::var_os("CARGO_TARGET_DIR").as_deref());
    let counted = PATHS.iter().map(|path| count(&program, path)).collect::<Result<Vec<u64>>>()?;
    let file = workspace.root().join("benches/engine/counts.txt");
    if env::var_os("TCX_BLESS").is_some() {
        let lines = PATHS.iter().zip(&counted).map(|(path, count)| format!("{path} {count}\n"));
        return fs::write(&file, lines.collect::<String>())
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())));
    }
    let text = fs::read_to_string(&file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))?;
    compare(&text, &counted)
}

/// Where Cargo, called in `root`, puts what it builds.
fn program(root: &Path, target: Option<&OsStr>) -> PathBuf {
    root.join(target.unwrap_or(OsStr::new("target"))).join("release/counts")
}

/// The instructions that callgrind sees within a function.
fn count(program: &Path, function: &str) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(format!("--toggle-collect=*{function}*")).arg(program);
    let output = valgrind.output().map_err(|error| process::cannot_start(&valgrind, &error))?;
    printed_count(function, output.status.success(), &String::from_utf8_lossy(&output.stderr))
}

/// The count in what callgrind printed. One of a program that did not run to its end is of a part of the path.
fn printed_count(function: &str, succeeded: bool, said: &str) -> Result<u64> {
    let said = said.trim();
    if !succeeded {
        return Err(Failure::new(format!(
            "the program that runs `{function}` failed under callgrind: {said}"
        )));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected :"));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| {
        Failure::new(format!("callgrind printed no instruction count of `{function}`: {said}"))
    })
}

fn compare(checked_in: &str, counted: &[u64]) -> Result<()> {
    for (path, &count) in PATHS.iter().zip(counted) {
        let expected =
            checked_in.lines().find_map(|line| line.strip_prefix(path)?.trim().parse::<u64>().ok());
        let expected = expected.ok_or_else(|| {
            Failure::new(format!(
                "no count of `{path}` is checked in; write it with `TCX_BLESS=1 cargo xtask counts`"
            ))
        })?;
        let ratio = count as f64 / expected as f64;
        eprintln!("{path}: {count} instructions, {ratio:.3} of the checked-in count");
        if ratio < AT_LEAST {
            return Err(Failure::new(format!(
                "`{path}` takes {count} instructions, expected about {expected}: if it still does all its work, write the new counts \
                 with `TCX_BLESS=1 cargo xtask counts`"
            )));
        }
        if ratio > TOLERANCE {
            return Err(Failure::new(format!(
                "`{path}` takes {count} instructions, expected about {expected}: make it faster, or, if the change is worth it, write \
                 the new counts with `TCX_BLESS=1 cargo xtask counts`"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED_IN: &str = "read_path 1000\nwrite_path 2000\n";

    #[test]
    fn more_instructions_than_are_checked_in_are_a_failure_that_says_what_to_do() {
        compare(CHECKED_IN, &[1049, 2000]).unwrap();
        let error = compare(CHECKED_IN, &[1000, 2101]).unwrap_err().to_string();
        assert!(error.contains("`write_path`") && error.contains("TCX_BLESS=1"), "{error}");
    }

    #[test]
    fn a_path_that_hardly_runs_is_a_failure() {
        compare(CHECKED_IN, &[500, 1000]).unwrap();
        let error = compare(CHECKED_IN, &[0, 2000]).unwrap_err().to_string();
        assert!(error.contains("`read_path` takes 0 instructions"), "{error}");
    }

    #[test]
    fn a_program_that_fails_has_no_count() {
        let said = "==1== Process terminating with default action of signal 11\n==1== Collected : 700\n";
        let error = printed_count("read_path", false, said).unwrap_err().to_string();
        assert!(error.contains("failed under callgrind") && error.contains("signal 11"), "{error}");
        assert_eq!(printed_count("read_path", true, said).unwrap(), 700);
    }

    #[test]
    fn a_path_without_a_count_is_a_failure() {
        assert!(compare("read_path 1000\n", &[1000, 1]).unwrap_err().to_string().contains("`write_path`"));
    }

    #[test]
    fn the_program_is_where_cargo_is_told_to_put_it() {
        let at = |target: Option<&str>| program(Path::new("/clone"), target.map(OsStr::new));
        assert_eq!(at(None), Path::new("/clone/target/release/counts"));
        assert_eq!(at(Some("/elsewhere")), Path::new("/elsewhere/release/counts"));
        assert_eq!(at(Some("built")), Path::new("/clone/built/release/counts"));
    }
}
