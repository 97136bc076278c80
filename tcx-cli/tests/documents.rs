//! What README.md, CONTRIBUTING.md, docs/cli.md and docs/operations.md advise works: their `sh` blocks are run, line by line,
//! and every `tcx` command within a line has the options it is given.
//!
//! The `cargo` commands among them are looked at by xtask's tests, and those of "Install" run by tests/tests/documents.rs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{TCX, files, fill_resnet, json, open, workplace};
use tcx_store::{ColumnType, DType, Identity, KeyType, Spec};

const DOCUMENTS: [&str; 11] = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/cli.md",
    "docs/design.md",
    "docs/faq.md",
    "docs/features.md",
    "docs/guide.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/recipes.md",
    "docs/remote.md",
];

fn read(document: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document)).unwrap()
}

/// The lines of the `sh` blocks that are for this crate to run.
fn lines(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    let is_here = |line: &&str| !line.starts_with("tcx sql ") || cfg!(feature = "sql");
    let of_others = |line: &&str| line.starts_with("cargo ") || line.starts_with("eval ");
    blocks.flat_map(str::lines).filter(move |line| is_here(line) && !of_others(line))
}

/// Runs every line in a folder with caches and says how many there were.
fn run(document: &str, dir: &Path) -> usize {
    let path = format!("{}:{}", Path::new(TCX).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let document = read(document);
    for line in lines(&document) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).current_dir(dir).env("PATH", &path).env("HOME", dir);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
    }
    lines(&document).count()
}

#[test]
fn the_commands_of_the_readme_and_of_the_reference_work() {
    let dir = workplace();
    fs::write(dir.path().join("ids.txt"), "1\n2\n").unwrap();
    run("README.md", dir.path());
    assert!(run("docs/cli.md", dir.path()) >= 10);
    run("CONTRIBUTING.md", dir.path());
    run("docs/stress.md", dir.path());
}

#[test]
fn what_an_operator_is_told_to_do_works() {
    let dir = workplace();
    assert!(run("docs/operations.md", dir.path()) >= 5);
}

#[test]
fn a_copy_by_rsync_has_every_module_whatever_it_is_called() {
    if Command::new("rsync").arg("--version").output().is_err() {
        let why = "rsync is not installed: the copy that docs/operations.md advises is not made";
        return tcx_test_skips::skip("rsync", why);
    }
    let dir = workplace();
    let cache = dir.path().join("cache");
    let output = ColumnType::Dense { dtype: DType::BF16, shape: &[3] };
    for id in ["run-3", "tmp-3"] {
        let spec = Spec::new(id, KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
        fill_resnet(&open(&cache, spec), 0..10);
        fs::write(cache.join(id).join("tmp-left"), "").unwrap();
    }
    let document = read("docs/operations.md");
    let line = document.split('`').find(|code| code.starts_with("rsync ")).unwrap();
    let line = format!("mkdir -p backup && {line}");
    let copied = Command::new("sh").args(["-ec", &line]).current_dir(dir.path()).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let backup = dir.path().join("backup/cache");
    for module in ["clip_v1", "resnet50_v1", "run-3", "tmp-3"] {
        let rows = |cache: &str| json(dir.path(), &["stats", cache, module])["rows"].clone();
        assert_eq!(rows("backup/cache"), rows("cache"), "{module}");
        for left_out in ["run-", "tmp-"] {
            assert!(files(&backup.join(module), left_out).is_empty(), "{module}");
        }
    }
}

/// The `tcx` commands within lines of text.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = spans.map(|span| span.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.len() > 1 && words[0] == "tcx").collect()
}

#[test]
fn every_command_that_is_advised_exists_with_its_options() {
    let documents = DOCUMENTS.map(read);
    let commands: Vec<_> = documents.iter().flat_map(|text| commands(text)).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for words in commands {
        let output = Command::new(TCX).args([words[1], "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{words:?}");
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{words:?}: no {option} in {help}");
        }
    }
}

/// Every source file below a folder, without the breaks within strings.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else {
            text.push_str(&fs::read_to_string(&path).unwrap().replace("\\\n", ""));
        }
    }
}

#[test]
fn what_an_operator_may_read_is_what_the_programs_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut source = String::new();
    for folder in ["tcx-store/src", "tcx/src", "tcx-cli/src"] {
        sources(&root.join(folder), &mut source);
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<String>();
    let source = squeezed(&source);
    let document = read("docs/operations.md");
    let table = document.split("\n## What to do when\n").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let messages: Vec<&str> = rows.filter_map(|line| line.split('`').nth(1)).collect();
    assert!(messages.len() > 10, "{messages:?}");
    for message in messages {
        for part in message.split('…').map(squeezed) {
            assert!(source.contains(&part), "`{message}`: nothing says `{part}`");
        }
    }
}
