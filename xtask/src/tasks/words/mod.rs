//! The check of the words: documents, messages and documentation comments avoid the words that a reader has to decode, and
//! Markdown is wrapped. Comments name who acts.

mod texts;

use std::fs;
use std::path::{Path, PathBuf};

use super::documents;
use crate::workspace::Workspace;
use texts::Word;

/// The sources whose messages and documentation comments are checked.
const SOURCES: &[&str] = &[
    "benches",
    "examples",
    "tcx-cli/src",
    "tcx-derive/src",
    "tcx-python/src",
    "tcx-remote/src",
    "tcx-sql/src",
    "tcx-store/src",
    "tcx/src",
    "xtask/src",
];
/// What only tests compile, this check included.
const TESTS: [&str; 5] = ["words", "tests", "testing", "tests.rs", "fuzzing.rs"];
/// The sources of tests beside [`SOURCES`].
const SOURCES_OF_TESTS: [&str; 5] =
    ["fuzz/src", "tcx-cli/tests", "tcx-remote/tests", "tcx-sql/tests", "tests"];
/// Words that no comment, string or name has, of tests neither: they do not name who acts.
const UNNAMED_ACTORS: [&str; 3] = ["nobody", "somebody", "whoever"];
/// The longest line of a document, in characters.
const COLUMNS: usize = 100;

/// Words to avoid, with those to write instead.
struct Rule {
    words: &'static [&'static str],
    instead: &'static str,
    /// Whether the words are meant in another sense, by what follows them.
    is_honest: fn(&[Word]) -> bool,
}

const fn avoid(words: &'static [&'static str], instead: &'static str) -> Rule {
    Rule { words, instead, is_honest: |_| false }
}

const RULES: &[Rule] = &[
    avoid(&["told"], "reported, logged, printed, returned"),
    avoid(&["tell"], "report, log, print, return"),
    avoid(&["tells"], "reports, logs, prints, returns"),
    avoid(&["telling"], "reporting, logging, printing, returning"),
    avoid(&["nobody"], "name the process or the user: no process, no caller"),
    avoid(&["somebody"], "name the process or the user: another process, a caller"),
    avoid(&["whoever"], "name the process or the user: the caller that, a process that"),
    avoid(&["is", "none"], "name what it is not: is not a number, there is no row"),
    avoid(&["superfluous"], "reclaimable, replaced, redundant"),
    avoid(&["vouch"], "be responsible for, check"),
    avoid(&["vouches"], "is responsible for, checks"),
    avoid(&["anew"], "again"),
    avoid(&["once", "more"], "again"),
    avoid(&["for", "ever"], "forever"),
    avoid(&["tip", "over"], "change"),
    avoid(&["tips", "over"], "changes"),
    avoid(&["be", "had"], "be obtained, be available"),
    avoid(&["what", "is", "there"], "name it: existing rows, stored files"),
    avoid(&["at", "hand"], "in memory, available, current"),
    avoid(&["of", "which", "nothing"], "none of which"),
    Rule { words: &["so", "many"], instead: "the number of them", is_honest: |after| follows(after, "that") },
    Rule { words: &["as", "many"], instead: "the same number of", is_honest: |after| follows(after, "as") },
    Rule { words: &["stand"], instead: "are stored, are in", is_honest: is_substitute },
    Rule { words: &["stands"], instead: "is stored, is in", is_honest: is_substitute },
    Rule { words: &["stood"], instead: "was stored, was in", is_honest: is_substitute },
    Rule {
        words: &["meanwhile"],
        instead: "name what happens at that time, or begin the sentence with it",
        is_honest: |after| after.first().is_some_and(|word| !word.begins),
    },
];

/// Whether a comparison goes on within a few words, as in `as many rows as ids`.
fn follows(after: &[Word], word: &str) -> bool {
    after.iter().take(6).take_while(|next| !next.begins).any(|next| next.text == word)
}

/// As in `stands for` and `stands in for`.
fn is_substitute(after: &[Word]) -> bool {
    matches!(after, [first, ..] if first.text == "for")
        || matches!(after, [first, second, ..] if first.text == "in" && second.text == "for")
}

/// The words to avoid in a text, with their lines.
fn avoided(text: &[Word]) -> impl Iterator<Item = (usize, &'static Rule)> + '_ {
    let is_at = |rule: &Rule, at: usize| {
        let end = at + rule.words.len();
        let found = text.get(at..end).is_some_and(|words| {
            words.iter().zip(rule.words).all(|(word, avoided)| word.text == *avoided)
                && words[1..].iter().all(|word| !word.begins)
        });
        found && !(rule.is_honest)(&text[end..])
    };
    let rules = move |at| RULES.iter().filter(move |rule| is_at(rule, at)).map(move |rule| (at, rule));
    (0..text.len()).flat_map(rules).map(|(at, rule)| (text[at].line, rule))
}

fn findings(path: &str, texts: &[Vec<Word>]) -> Vec<String> {
    let found = texts.iter().flat_map(|text| avoided(text));
    found.map(|(line, rule)| finding(path, line, rule)).collect()
}

fn finding(path: &str, line: usize, rule: &Rule) -> String {
    format!("{path}:{line}: avoid `{}`; write: {}", rule.words.join(" "), rule.instead)
}

/// The places of a source that do not name who acts: comments, strings and names.
fn unnamed_actors(path: &str, source: &str) -> Vec<String> {
    // The words of a name, and one that owns something.
    let text = texts::of_document(&source.replace('_', " ").replace("'s", " "));
    let found = avoided(&text).filter(|(_, rule)| UNNAMED_ACTORS.contains(&rule.words[0]));
    found.map(|(line, rule)| finding(path, line, rule)).collect()
}

/// The Rust files below `folder` without those that are `skipped`, by their paths below the workspace.
fn sources(root: &Path, folder: &str, skipped: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = folder.join(&name);
            if skipped.contains(&name.as_str()) {
                continue;
            }
            if root.join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A document without the sections of released versions, which stay as they were written.
fn current<'a>(path: &str, document: &'a str) -> &'a str {
    let released = (path == "CHANGELOG.md").then(|| document.find("\n## 0.1.0\n")).flatten();
    &document[..released.unwrap_or(document.len())]
}

#[test]
fn documents_avoid_words_that_a_reader_has_to_decode() {
    let documents = documents::documents(&Workspace::find().unwrap());
    let found: Vec<String> = documents
        .iter()
        .flat_map(|(path, document)| findings(path, &[texts::of_document(current(path, document))]))
        .collect();
    assert!(found.is_empty(), "{} findings\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn messages_and_documentation_avoid_words_that_a_reader_has_to_decode() {
    let workspace = Workspace::find().unwrap();
    let mut found = Vec::new();
    for path in SOURCES.iter().flat_map(|folder| sources(workspace.root(), folder, &TESTS)) {
        let text = fs::read_to_string(workspace.root().join(&path)).unwrap();
        let path = path.display().to_string();
        let texts = texts::of_source(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        found.extend(findings(&path, &texts));
    }
    assert!(found.is_empty(), "{} findings\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn comments_and_tests_name_who_acts() {
    let workspace = Workspace::find().unwrap();
    let folders = SOURCES.iter().chain(&SOURCES_OF_TESTS);
    let paths: Vec<PathBuf> =
        folders.flat_map(|folder| sources(workspace.root(), folder, &["words"])).collect();
    assert!(paths.len() > 500, "{}", paths.len());
    let found: Vec<String> = paths
        .iter()
        .flat_map(|path| {
            let source = fs::read_to_string(workspace.root().join(path)).unwrap();
            unnamed_actors(&path.display().to_string(), &source)
        })
        .collect();
    assert!(found.is_empty(), "{} findings\n{}\n", found.len(), found.join("\n"));
}

#[test]
fn documents_are_wrapped() {
    let documents = documents::documents(&Workspace::find().unwrap());
    let found: Vec<String> = documents
        .iter()
        .flat_map(|(path, document)| {
            texts::too_long(document, COLUMNS).into_iter().map(move |line| format!("{path}:{line}"))
        })
        .collect();
    assert!(found.is_empty(), "wrap these lines at {COLUMNS} columns:\n{}\n", found.join("\n"));
}

#[test]
fn each_word_to_avoid_is_found() {
    let text = "Errors are told. They tell the user, a counter tells it, by telling it. Nobody looks, somebody\n\
                whoever it is. There is none.\nSuperfluous files are made anew; for one that says nothing you\n\
                vouch, tcx vouches. It can be had. So what is there is at hand, of which nothing is read:\n\
                so many rows, as many ids. Rows stand here, one\nstands\nthere, one stood there. Labels\n\
                tip over once more, one tips over for ever. It waits\n\
                meanwhile.";
    let text = texts::of_document(text);
    let mut found: Vec<&str> = avoided(&text).filter_map(|(_, rule)| rule.words.first().copied()).collect();
    let mut all: Vec<&str> = RULES.iter().filter_map(|rule| rule.words.first().copied()).collect();
    found.sort_unstable();
    all.sort_unstable();
    assert_eq!(found, all);
    let lines: Vec<String> = findings("a.md", &[text]);
    assert!(lines.contains(&"a.md:6: avoid `stands`; write: is stored, is in".to_owned()), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("a.md:9: avoid `meanwhile`; write: name"), "{lines:?}");
}

#[test]
fn other_senses_of_these_words_pass() {
    for text in [
        "A mark stands for a segment, and stands in for it.",
        "It has as many sizes as dimensions. There are so many rows that memory is short.",
        "Meanwhile the processor fetches the next line. What is\n\nthere?",
        "The value is. None of them is a stand-in for `superfluous_bytes`.",
        "`Session::told` is called `Session::provenance`.",
    ] {
        assert_eq!(findings("a.md", &[texts::of_document(text)]), [""; 0], "{text}");
    }
    let quoted = "It prints `no files are told`.";
    assert_eq!(findings("a.md", &[texts::of_document(quoted)]).len(), 1);
}

#[test]
fn actors_without_a_name_are_found_in_comments_strings_and_names() {
    let source = "// Whoever reads it.\nfn told_if_nobody_listens() {\n    say(\"somebody's\");\n}\n";
    let found = unnamed_actors("a.rs", source);
    let lines: Vec<&str> = found.iter().filter_map(|finding| finding.split(';').next()).collect();
    assert_eq!(
        lines,
        ["a.rs:1: avoid `whoever`", "a.rs:2: avoid `nobody`", "a.rs:3: avoid `somebody`"],
        "`told` is left to the other checks"
    );
}

#[test]
fn released_versions_of_the_changelog_stay_as_they_are() {
    let changelog = "# Changelog\n\n## 0.2.0\nRows are told.\n\n## 0.1.0\nRows are told.\n";
    assert_eq!(current("CHANGELOG.md", changelog), "# Changelog\n\n## 0.2.0\nRows are told.\n");
    assert_eq!(current("README.md", changelog), changelog);
}
