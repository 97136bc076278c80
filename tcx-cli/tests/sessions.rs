//! Terminal sessions: every `console` block of these files and of docs/cli.md is run, and prints what the block shows.
//!
//! With `TCX_BLESS=1` the test writes the present output into the files, to be read before it is committed.
//!
//! `trycmd` does not fit: it has no shell, and these sessions are a user's lines with pipes, redirections and other
//! programs, in a folder that the engine fills first and one command leaves to the next.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{TCX, damage, files, workplace};

/// Runs the sessions of a file in `dir`.
fn check(file: &str, dir: &Path) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let expected = fs::read_to_string(&path).unwrap();
    let said = replay(&expected, dir);
    if std::env::var_os("TCX_BLESS").is_some() {
        fs::write(&path, &said).unwrap();
    } else if sizeless(&said) != sizeless(&expected) {
        let (said, expected) = (sizeless(&said), sizeless(&expected));
        let differs = expected.lines().zip(said.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| expected.lines().count().min(said.lines().count()));
        panic!("{} says something else from line {} on:\n{said}", path.display(), line + 1);
    }
}

/// The file with what its commands say now.
fn replay(text: &str, dir: &Path) -> String {
    let (mut said, mut in_session) = (String::new(), false);
    for line in text.lines() {
        let fence = line.starts_with("```");
        in_session = if fence { is_session(line) } else { in_session };
        // What a command said last time is left out.
        if !in_session || fence || line.starts_with("$ ") {
            said.push_str(line);
            said.push('\n');
        }
        if in_session && let Some(command) = line.strip_prefix("$ ") {
            said.push_str(&run(command, dir));
        }
    }
    said
}

/// Some can be run only where SQL is built in.
fn is_session(fence: &str) -> bool {
    fence == "```console" || cfg!(feature = "sql") && fence == "```console sql"
}

/// How many bytes files take is no matter of the commands, but whether they take any is: `B` stands for some. Nor is the number of rows
/// that make room.
fn sizeless(text: &str) -> String {
    let is_size = |word: &str| word.parse().is_ok_and(|size: f64| size > 0.0);
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = |(at, word): (usize, &&str)| {
            let before = at.checked_sub(1).map_or("", |before| words[before]);
            let is_unit = |word: &str| matches!(word.trim_matches([',', ';', ')']), "B" | "kB");
            let is_bytes = before.contains("bytes") && before.ends_with(':')
                || words.get(at + 1).is_some_and(|next| is_unit(next));
            let is_size = is_bytes && is_size(word.trim_matches(['(', ',']));
            let makes_room = words.get(at + 1) == Some(&"rows,") && line.contains("a part of one segment");
            if is_size || makes_room { "B".to_owned() } else { word.replace("kB", "B") }
        };
        words.iter().enumerate().map(of).collect::<Vec<_>>().join(" ") + "\n"
    });
    lines.collect()
}

fn run(command: &str, dir: &Path) -> String {
    let program = PathBuf::from(TCX);
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{{ {command}\n}} 2>&1 </dev/null")]).current_dir(dir).env("PATH", path);
    let output = shell.env_remove("NO_COLOR").env("COLUMNS", "100").output().unwrap();
    let code = match output.status.code() {
        Some(0) => String::new(),
        code => format!("? {}\n", code.unwrap()),
    };
    masked(&String::from_utf8(output.stdout).unwrap()) + &code
}

/// What differs from run to run is replaced: random names, times, processes.
fn masked(text: &str) -> String {
    let (mut masked, mut word, mut before) = (String::new(), String::new(), String::new());
    for c in text.chars().chain(['\0']) {
        if c.is_ascii_alphanumeric() {
            word.push(c);
            continue;
        }
        let is_hex = word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        let is_time = word.len() == 13 && word.chars().all(|c| c.is_ascii_digit());
        let is_process = before == "process" && word.chars().all(|c| c.is_ascii_digit());
        masked.push_str(match () {
            () if is_time => "[ms]",
            () if is_process && !word.is_empty() => "[process]",
            // Changes are numbered with twenty digits.
            () if is_hex && word.len() >= 16 && !word.starts_with("00000000") => "[hex]",
            () => &word,
        });
        if !word.is_empty() {
            before = std::mem::take(&mut word);
        }
        masked.push(c);
    }
    masked.pop();
    let lines = masked.lines().map(|line| {
        let date = line.find('-').filter(|at| line[*at..].contains('T') && line.ends_with('Z'));
        let line =
            date.and_then(|at| line.get(..at - 4)).map_or(line.to_owned(), |start| format!("{start}[date]"));
        line + "\n"
    });
    lines.collect()
}

/// Damages the segment with the row `horse`.
fn damage_horse(module: &Path) {
    let of_horse = |path: &&PathBuf| fs::read(path).unwrap().windows(5).any(|bytes| bytes == b"horse");
    damage(files(module, "seg-").iter().find(of_horse).unwrap());
}

#[test]
fn the_reference_shows_what_the_commands_say() {
    let dir = workplace();
    check("../docs/cli.md", dir.path());
}

#[test]
fn the_json_of_each_command_is_as_documented() {
    let dir = workplace();
    check("tests/sessions/json.md", dir.path());
}

#[cfg(feature = "sql")]
#[test]
fn questions_in_sql_are_answered() {
    let dir = workplace();
    check("tests/sessions/sql.md", dir.path());
    let dir = workplace();
    damage_horse(&dir.path().join("cache/clip_v1"));
    check("tests/sessions/sql_damaged.md", dir.path());
}

#[cfg(not(feature = "remote"))]
#[test]
fn a_command_without_object_stores_says_how_to_get_them() {
    let dir = workplace();
    check("tests/sessions/without_remote.md", dir.path());
}

#[cfg(not(feature = "sql"))]
#[test]
fn where_sql_is_not_built_in_it_is_told_how_to_get_it() {
    let dir = workplace();
    check("tests/sessions/without_sql.md", dir.path());
}

/// `cargo xtask test` names the cache that the example `minilm` has just left, and runs this test in a later step: it is
/// not in the list of skipped tests.
#[test]
fn the_commands_work_on_the_cache_of_a_real_network() {
    let Some(cache) = std::env::var_os("TCX_MINILM_CACHE") else {
        eprintln!("skipped: `TCX_MINILM_CACHE` names no cache of the example `minilm`");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(cache).arg(dir.path().join("cache")).status().unwrap();
    assert!(copied.success());
    check("tests/sessions/minilm.md", dir.path());
}

#[test]
fn a_damaged_cache_is_told_and_repaired() {
    let dir = workplace();
    let clip = dir.path().join("cache/clip_v1");
    damage_horse(&clip);
    for run in files(&clip, "run-") {
        damage(&run);
    }
    check("tests/sessions/damaged.md", dir.path());
}

#[test]
fn a_file_that_cannot_be_read_is_told_and_left_where_it_is() {
    let dir = workplace();
    let run = &files(&dir.path().join("cache/clip_v1"), "run-")[0];
    fs::remove_file(run).unwrap();
    // No plain file: opening it fails, also for root.
    fs::create_dir(run).unwrap();
    check("tests/sessions/unreadable.md", dir.path());
}

#[test]
fn a_damaged_identity_is_told_clearly() {
    let dir = workplace();
    damage(&dir.path().join("cache/clip_v1/change-00000000000000000000"));
    check("tests/sessions/lost.md", dir.path());
}

#[test]
fn wrong_arguments_are_told_with_the_remedy() {
    let dir = workplace();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::write(dir.path().join("cache/resnet50_v1/notes.txt"), "mine").unwrap();
    check("tests/sessions/mistakes.md", dir.path());
}
