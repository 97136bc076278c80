//! What the documents show is run: each fenced block has a test that runs it, each `cargo` command is one that exists.

mod features;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::cli;
use crate::workspace::Workspace;

/// Which test runs the blocks of a document, or of those in a folder, that have this info string; it names the document. Blocks of `text` are not run: they show what
/// something prints, or how something is laid out.
const RUN_BY: &[(&str, &str, &str)] = &[
    ("README.md", "rust", "tests/tests/messages/documents.rs"),
    ("tcx/README.md", "rust", "tests/tests/messages/documents.rs"),
    ("README.md", "python", "tcx-python/tests/test_documents.py"),
    ("docs/python.md", "python", "tcx-python/tests/test_documents.py"),
    ("tcx-python/README.md", "python", "tcx-python/tests/test_documents.py"),
    ("docs/guide.md", "python", "tcx-cli/tests/python.rs"),
    ("README.md", "sh", "tcx-cli/tests/documents.rs"),
    ("docs/cli.md", "console", "tcx-cli/tests/sessions.rs"),
    ("docs/cli.md", "console sql", "tcx-cli/tests/sessions.rs"),
    ("docs/cli.md", "sh", "tcx-cli/tests/documents.rs"),
    ("docs/guide.md", "rust", "tests/tests/messages/documents.rs"),
    ("docs/backends.md", "rust", "tests/tests/messages/documents.rs"),
    ("docs/operations.md", "sh", "tcx-cli/tests/documents.rs"),
    ("docs/recipes.md", "python", "tcx-cli/tests/recipes.rs"),
    ("docs/recipes.md", "sh", "tcx-cli/tests/recipes.rs"),
    ("CONTRIBUTING.md", "sh", "tcx-cli/tests/documents.rs"),
    ("docs/stress.md", "sh", "tcx-cli/tests/documents.rs"),
    ("tcx-cli/tests/sessions", "console", "tcx-cli/tests/sessions.rs"),
];

/// A fenced block, or a piece of code within a line (its info string is `span`).
#[derive(Debug, PartialEq)]
struct Code {
    line: usize,
    info: String,
    text: String,
}

/// The code of a document, in order.
fn code(document: &str) -> Vec<Code> {
    let mut found: Vec<Code> = Vec::new();
    let mut is_open = false;
    for (event, range) in Parser::new_ext(document, Options::ENABLE_TABLES).into_offset_iter() {
        let line = 1 + document[..range.start].matches('\n').count();
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                is_open = true;
                found.push(Code { line, info: info.into_string(), text: String::new() });
            }
            Event::End(TagEnd::CodeBlock) => is_open = false,
            Event::Text(text) if is_open => found.last_mut().unwrap().text.push_str(&text),
            Event::Code(text) => {
                found.push(Code { line, info: "span".to_owned(), text: text.into_string() });
            }
            _ => {}
        }
    }
    found
}

/// The documents of the workspace, by their paths below it.
pub(super) fn documents(workspace: &Workspace) -> Vec<(String, String)> {
    let root = workspace.root();
    let paths = tracked(root).unwrap_or_else(|| walked(root));
    let mut found: Vec<_> = paths
        .into_iter()
        .map(|path| (path.to_string_lossy().into_owned(), root.join(&path)))
        .filter(|(_, file)| file.is_file())
        .map(|(path, file)| (path, fs::read_to_string(file).unwrap()))
        .collect();
    found.sort();
    found
}

/// The documents that git knows: what else lies in a checkout, an environment of Python say, is not the project's. `None`
/// if this is no checkout.
fn tracked(root: &Path) -> Option<Vec<PathBuf>> {
    let mut git = Command::new("git");
    let output = git.args(["ls-files", "-z", "*.md"]).current_dir(root).output().ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let found: Vec<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
    (output.status.success() && !found.is_empty()).then_some(found)
}

/// The documents in all folders but those of builds and hidden ones.
fn walked(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found
}

/// The commands of a line of a shell, without comments.
fn commands(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split(" #").next().unwrap_or_default();
    line.split("&&").map(|command| command.trim().trim_end_matches(")\""))
}

/// Why this `cargo` command does not work in this workspace.
fn mistake(command: &str, root: &Path) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |option: &[&str]| {
        let at = words.iter().position(|word| option.contains(word))?;
        words.get(at + 1).copied()
    };
    if words.get(1) == Some(&"xtask") {
        return cli::parse(words[2..].iter().map(Into::into).collect()).err();
    }
    let is_there =
        |path: PathBuf, holds: &str| fs::read_to_string(path).is_ok_and(|text| text.contains(holds));
    let named = |name: &str| format!("name = \"{name}\"");
    let manifest = match after(&["-p", "--package"]) {
        Some("tcx-cache") => root.join("tcx"),
        Some("tcx-engine-benches") => root.join("benches/engine"),
        Some("tcx-engine-tests") => root.join("tests/engine"),
        Some("tcx-library-examples") => root.join("examples/libraries"),
        Some(package) => root.join(package),
        None => root.join("examples"),
    };
    let manifest = manifest.join("Cargo.toml");
    if let Some(package) =
        after(&["-p", "--package"]).filter(|package| !is_there(manifest.clone(), &named(package)))
    {
        return Some(format!("no package `{package}`"));
    }
    if let Some(example) =
        after(&["--example"]).filter(|name| *name != "NAME" && !is_there(manifest.clone(), &named(name)))
    {
        return Some(format!("no example `{example}`"));
    }
    if let Some(bin) = after(&["--bin"]).filter(|name| !is_there(manifest.clone(), &named(name))) {
        return Some(format!("no program `{bin}`"));
    }
    if words.get(1) == Some(&"add") && words.get(2) == Some(&"tcx-cache") {
        let manifest = root.join("tcx/Cargo.toml");
        return (!is_there(manifest, &named("tcx-cache"))).then(|| "no package `tcx-cache`".to_owned());
    }
    if let Some(folder) = after(&["--path"]) {
        // What is added lies in a clone named `tcx`, beside the crate that it is added to.
        let (folder, target) = match folder.strip_prefix("../tcx/").filter(|_| words[1] == "add") {
            Some(folder) => (folder, "[features]"),
            None => (folder, "[[bin]]"),
        };
        if !is_there(root.join(folder).join("Cargo.toml"), target) {
            return Some(format!("no `{target}` in the manifest of `{folder}`"));
        }
    }
    let known = ["add", "build", "check", "clean", "clippy", "doc", "fmt", "install", "run", "test"];
    words.get(1).filter(|word| !known.contains(word)).map(|word| format!("unknown command `{word}`"))
}

#[test]
fn every_block_of_a_document_is_run_by_a_test() {
    let workspace = Workspace::find().unwrap();
    let mut unused: Vec<_> = RUN_BY.to_vec();
    for (path, document) in documents(&workspace) {
        for block in code(&document).iter().filter(|code| !matches!(&*code.info, "span" | "text")) {
            let is_of =
                |row: &&(&str, &str, &str)| Path::new(&path).starts_with(row.0) && row.1 == block.info;
            let row = RUN_BY.iter().find(is_of);
            let Some((_, _, test)) = row else {
                panic!(
                    "{path}:{}: nothing runs this block of `{}`: say `text` if it is output, else name here what runs it",
                    block.line, block.info
                );
            };
            unused.retain(|row| !is_of(&row));
            let name = Path::new(&path).file_name().unwrap().to_string_lossy().into_owned();
            let test = fs::read_to_string(workspace.root().join(test)).unwrap();
            assert!(test.contains(&name), "{path}:{}: its test does not know {name}", block.line);
        }
    }
    assert!(unused.is_empty(), "there are no such blocks any more: {unused:?}");
}

#[test]
fn every_cargo_command_of_a_document_exists() {
    let workspace = Workspace::find().unwrap();
    let mut count = 0;
    for (path, document) in documents(&workspace) {
        for code in code(&document).iter().filter(|code| matches!(&*code.info, "span" | "sh")) {
            for command in
                code.text.lines().flat_map(commands).filter(|command| command.starts_with("cargo "))
            {
                if let Some(why) = mistake(command, workspace.root()) {
                    panic!("{path}, from line {}: `{command}`: {why}", code.line);
                }
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// The links of a document, and the anchors of its headings as the places that show Markdown make them.
fn links_and_anchors(document: &str) -> (Vec<String>, Vec<String>) {
    let (mut links, mut anchors) = (Vec::new(), Vec::new());
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(document, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => anchors.extend(heading.take().map(|heading| anchor(&heading))),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    (links, anchors)
}

fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Why a link of the document at `path` leads nowhere.
fn dead(root: &Path, path: &str, link: &str) -> Option<String> {
    let (target, heading) = link.split_once('#').unwrap_or((link, ""));
    let file = if target.is_empty() { root.join(path) } else { root.join(path).parent()?.join(target) };
    if !file.exists() {
        return Some(format!("no {}", file.display()));
    }
    let text = if heading.is_empty() { return None } else { fs::read_to_string(file).unwrap_or_default() };
    let (_, anchors) = links_and_anchors(&text);
    (!anchors.iter().any(|anchor| anchor == heading)).then(|| format!("no heading `{heading}`"))
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let workspace = Workspace::find().unwrap();
    let mut count = 0;
    for (path, document) in documents(&workspace) {
        let (links, _) = links_and_anchors(&document);
        for link in links.iter().filter(|link| !link.contains("://")) {
            if let Some(why) = dead(workspace.root(), &path, link) {
                panic!("{path}: {link}: {why}");
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
    assert!(dead(workspace.root(), "docs/guide.md", "../README.md#no-such-heading").is_some());
    assert!(dead(workspace.root(), "docs/guide.md", "README.md").is_some());
}

#[test]
fn every_example_begins_with_what_it_shows_how_to_run_it_and_what_to_look_at() {
    let workspace = Workspace::find().unwrap();
    let folder = workspace.root().join("examples");
    let manifest = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (own, libraries) = (manifest("Cargo.toml"), manifest("libraries/Cargo.toml").replace("\"../", "\""));
    let examples =
        [&own, &libraries].into_iter().flat_map(|manifest| manifest.split("[[example]]\n").skip(1));
    let mut examples: Vec<&str> = examples.collect();
    // In a package of its own.
    examples.push("name = \"minilm\" path = \"minilm/main.rs\"");
    assert!(examples.len() > 10, "{examples:?}");
    for example in examples {
        let value = |name: &str| example.split_once(name).unwrap().1.split('"').next().unwrap();
        let (name, path) = (value("name = \""), value("path = \""));
        let text = fs::read_to_string(folder.join(path)).unwrap();
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let starts = ["//! Shows: ", "//! Run: ", "//! Look at: "];
        let places = starts.map(|start| head.iter().position(|line| line.starts_with(start)));
        assert!(places[0] == Some(0) && places.is_sorted() && places[2].is_some(), "{path}: {head:?}");
        let run = head[places[1].unwrap()];
        assert!(
            run.contains(&format!("--example {name}")) || run.contains("cargo xtask demo"),
            "{path}: {run}"
        );
    }
}

#[test]
fn documents_that_are_not_the_projects_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for path in ["README.md", "environment/lib/README.md", "target/README.md"] {
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    assert_eq!(tracked(dir.path()), None);
    let mut walked = walked(dir.path());
    walked.sort();
    assert_eq!(walked, ["README.md", "environment/lib/README.md"].map(PathBuf::from));
    for arguments in [["init", "--quiet"], ["add", "README.md"]] {
        let git = Command::new("git").args(arguments).current_dir(dir.path()).output();
        if !git.is_ok_and(|output| output.status.success()) {
            return tcx_test_skips::skip("git", "git is not installed");
        }
    }
    assert_eq!(tracked(dir.path()).unwrap(), [PathBuf::from("README.md")]);
}

#[test]
fn code_is_found_in_blocks_and_in_lines() {
    let document = "Say `a b`:\n\n```sh\ncargo `x`\n```\nand ```` `c` ````\n\n- d\n  ```text\n  y\n  ```\n";
    let found = code(document).into_iter().map(|code| (code.line, code.info, code.text));
    let expected = [(1, "span", "a b"), (3, "sh", "cargo `x`\n"), (6, "span", "`c`"), (9, "text", "y\n")];
    let expected = expected.map(|(line, info, text)| (line, info.to_owned(), text.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn links_and_anchors_are_found() {
    let document =
        "# The `tcx` command: a-b\n\nSee [one](a.md#b) and [two].\n\n`[no](link)`\n\n[two]: c.md\n";
    let (links, anchors) = links_and_anchors(document);
    assert_eq!(links, ["a.md#b", "c.md"]);
    assert_eq!(anchors, ["the-tcx-command-a-b"]);
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let workspace = Workspace::find().unwrap();
    let mistake = |command| mistake(command, workspace.root());
    assert_eq!(mistake("cargo xtask bench --quick"), None);
    assert_eq!(mistake("cargo run --release --example resnet50 -- FOLDER"), None);
    assert_eq!(mistake("cargo install --locked --path tcx-cli"), None);
    assert_eq!(mistake("cargo add --path ../tcx/tcx"), None);
    for wrong in [
        "cargo xtask bench --fast",
        "cargo run --example resnet51",
        "cargo test -p tcx-stores",
        "cargo run -p tcx-engine-benches --bin indices",
        "cargo install --path tcx",
        "cargo add --path ../tcx/tests",
        "cargo tset",
    ] {
        assert!(mistake(wrong).is_some(), "{wrong}");
    }
}
