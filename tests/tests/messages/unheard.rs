//! What a program sees that sets up no subscriber of `tracing`: the first trouble of each kind, with the path and what to do.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::{Path, PathBuf};
use std::process::Command;

use tcx::{Cache, Extractor, Result, cached_module};

/// What `unheard` writes to stderr.
fn said(dir: &Path, work: &str, subscriber: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_unheard")).arg(dir).args([work, subscriber]).output().unwrap();
    assert_eq!(ran.status.success(), work != "panic");
    String::from_utf8(ran.stderr).unwrap()
}

/// The lines of tcx.
fn notices(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("tcx: ")).collect()
}

/// One line of this trouble without a subscriber, with these parts; none with a subscriber, or if lines are switched off. Other
/// trouble that comes with it may have a line of its own.
fn one_line(prepare: impl Fn(&Path), work: &str, parts: &[&str]) {
    for subscriber in ["none", "off", "some"] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap().join("cache");
        prepare(&dir);
        let said = said(&dir, work, subscriber);
        let notices = notices(&said);
        if subscriber != "none" {
            assert!(notices.is_empty(), "{work}, subscriber {subscriber}: {said}");
            continue;
        }
        let of_this = notices.iter().filter(|line| line.contains(parts[0])).collect::<Vec<_>>();
        let [line] = of_this[..] else { panic!("one line of {work}: {said}") };
        assert!(line.contains(dir.to_str().unwrap()) || work == "repeated", "{line}");
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        assert!(line.ends_with("set up `tracing_subscriber` to see every report)"), "{line}");
    }
}

fn segment(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("unheard_v1")).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "arrow");
    files.into_iter().find(is_segment).unwrap()
}

/// A cache with a segment whose keys are damaged.
fn damage(dir: &Path) {
    said(dir, "use", "none");
    let segment = segment(dir);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::remove_file(&segment).unwrap();
    fs::write(&segment, bytes).unwrap();
}

#[test]
fn damage_is_written_to_stderr_once_without_a_subscriber() {
    one_line(damage, "use", &["damaged segment ", ".arrow", "run `tcx verify --repair`"]);
}

#[test]
fn rows_that_are_not_kept_are_written_to_stderr_once_without_a_subscriber() {
    let full = ["has reached its max_bytes: rows are computed but not kept; raise it"];
    one_line(|_| {}, "full", &full);
    let off =
        [" is off, rows are computed but not kept: ", "; `flush` reports this error, and tcx tries again"];
    one_line(|_| {}, "unwritable", &off);
}

#[test]
fn a_cache_that_is_not_there_to_be_read_is_written_to_stderr_once_without_a_subscriber() {
    one_line(
        |_| {},
        "absent",
        &["there is no cache at ", "in mode ReadOnly: every row is computed", "; check the path"],
    );
}

#[test]
fn a_repeated_id_is_written_to_stderr_once_without_a_subscriber() {
    let repeated =
        ["the id 0 is at positions 0 and 1 of the batch, with different inputs", "; give each sample"];
    one_line(|_| {}, "repeated", &repeated);
}

#[test]
fn nothing_is_written_if_nothing_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(said(dir.path(), "use", "none"), "");
}

#[test]
fn a_panic_of_forward_adds_a_line_with_the_module_and_the_first_ids() {
    let dir = tempfile::tempdir().unwrap();
    let said = said(dir.path(), "panic", "none");
    assert!(said.contains("13 brings bad luck"), "{said}");
    let line = "tcx: `forward` of module `unheard_v1` panicked on a batch of 5: 11, 12, 13 and 2 more";
    assert_eq!(notices(&said), [line]);
}

#[cached_module(id = "panics_v1", key = i64)]
struct Panics;

impl Extractor for Panics {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        if inputs.contains(&13) {
            panic_any(inputs.len())
        }
        Ok(inputs.clone())
    }
}

#[test]
fn a_panic_of_forward_goes_on_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let panics = Cache::open(dir.path()).unwrap().module(Panics).unwrap();
    // In the first batch, and in one after the checks.
    for ids in [[13, 2], [3, 4], [5, 13]] {
        let done = catch_unwind(AssertUnwindSafe(|| panics.forward(&ids, &ids.to_vec()).unwrap()));
        match done {
            Ok(found) => assert!(found == ids && !ids.contains(&13)),
            Err(payload) => assert_eq!(payload.downcast_ref::<usize>(), Some(&2)),
        }
    }
}
