//! Each row of docs/features.md names what shows it: a test that runs, an example, a figure or a section of a document.

use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::dead;
use crate::workspace::Workspace;

const FEATURES: &str = "docs/features.md";
/// Programs that assert what they show, and that the test command runs as a whole.
const EXAMPLES: &str = "examples/";

/// A row of a table: what it claims, and what shows it.
#[derive(Debug, Default, PartialEq)]
struct Row {
    line: usize,
    claim: String,
    shown_by: Vec<Evidence>,
    /// Words beside the links, such as a link that leads nowhere.
    rest: String,
}

/// A link, and the names in code behind it.
#[derive(Debug, Default, PartialEq)]
struct Evidence {
    link: String,
    names: Vec<String>,
}

/// The rows of the tables of a document.
fn rows(document: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let (mut is_row, mut cell, mut in_link) = (false, 0, false);
    for (event, range) in Parser::new_ext(document, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::TableRow) => {
                (is_row, cell) = (true, 0);
                let line = 1 + document[..range.start].matches('\n').count();
                rows.push(Row { line, ..Row::default() });
                continue;
            }
            Event::End(TagEnd::TableRow) => is_row = false,
            Event::End(TagEnd::TableCell) => cell += 1,
            _ => {}
        }
        let Some(row) = rows.last_mut().filter(|_| is_row) else { continue };
        match event {
            Event::Start(Tag::Link { dest_url, .. }) if cell > 0 => {
                in_link = true;
                row.shown_by.push(Evidence { link: dest_url.into_string(), names: Vec::new() });
            }
            Event::End(TagEnd::Link) => in_link = false,
            Event::Text(text) | Event::Code(text) if cell == 0 => row.claim.push_str(&text),
            Event::Code(name) if !in_link => match row.shown_by.last_mut() {
                Some(evidence) => evidence.names.push(name.into_string()),
                None => row.rest.push_str(&name),
            },
            Event::Text(text) if !in_link => row.rest.push_str(text.trim_matches([' ', ','])),
            _ => {}
        }
    }
    rows
}

/// The names of the tests of a source that run. Those that are ignored do not.
fn tests(source: &str) -> Result<Vec<String>, String> {
    let tokens: TokenStream = source.parse().map_err(|error| format!("{error}"))?;
    let mut found = Vec::new();
    collect(tokens, &mut found);
    Ok(found)
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut is_test, mut is_ignored) = (false, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if is_attribute(&tokens[..at], group.delimiter()) => {
                let first = group.stream().into_iter().next().map(|token| token.to_string());
                is_test |= first.as_deref() == Some("test");
                is_ignored |= first.as_deref() == Some("ignore");
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(word) if word == "fn" => {
                let name = tokens.get(at + 1).map(ToString::to_string);
                found.extend(name.filter(|_| is_test && !is_ignored));
                (is_test, is_ignored) = (false, false);
            }
            _ => {}
        }
    }
}

fn is_attribute(before: &[TokenTree], delimiter: Delimiter) -> bool {
    let is_hash = matches!(before.last(), Some(TokenTree::Punct(sign)) if sign.as_char() == '#');
    is_hash && delimiter == Delimiter::Bracket
}

/// Why a name in code behind a link names nothing in the linked text. A name that ends with `…` is the beginning of one test.
fn unknown(name: &str, target: &str, text: &str) -> Option<String> {
    if !is_source(target) {
        return (!text.contains(name)).then(|| format!("`{name}` is not in {target}"));
    }
    let tests = match tests(text) {
        Ok(tests) => tests,
        Err(error) => return Some(format!("{target}: {error}")),
    };
    let is_named = |test: &&String| match name.strip_suffix('…') {
        Some(start) => test.starts_with(start),
        None => *test == name,
    };
    match tests.iter().filter(is_named).count() {
        1 => None,
        0 => Some(format!("{target} has no test `{name}` that runs")),
        several => Some(format!("{target} has {several} tests `{name}`: write more of the name")),
    }
}

fn is_source(target: &str) -> bool {
    Path::new(target).extension().is_some_and(|extension| extension == "rs")
}

/// What is wrong with a row of the document at `path`.
fn mistakes(root: &Path, path: &str, row: &Row) -> Vec<String> {
    let mut found = Vec::new();
    if row.shown_by.is_empty() {
        found.push("name what shows it: a test, an example, a figure or a section".to_owned());
    }
    if !row.rest.is_empty() {
        found.push(format!("`{}` is no link and no name behind a link", row.rest));
    }
    for Evidence { link, names } in &row.shown_by {
        if let Some(why) = dead(root, path, link) {
            found.push(why);
            continue;
        }
        let target = link.split('#').next().unwrap_or_default();
        let file = root.join(path).parent().unwrap().join(target);
        let text = fs::read_to_string(file).unwrap_or_default();
        found.extend(names.iter().filter_map(|name| unknown(name, target, &text)));
        if is_source(target) && names.is_empty() && !target.trim_start_matches("../").starts_with(EXAMPLES) {
            found.push(format!("name the test in {target}"));
        }
    }
    found.into_iter().map(|why| format!("{path}:{}: {}: {why}", row.line, row.claim)).collect()
}

#[test]
fn every_feature_names_what_shows_it() {
    let workspace = Workspace::find().unwrap();
    let document = fs::read_to_string(workspace.root().join(FEATURES)).unwrap();
    let rows = rows(&document);
    assert!(rows.len() > 100, "{}", rows.len());
    let found: Vec<String> = rows.iter().flat_map(|row| mistakes(workspace.root(), FEATURES, row)).collect();
    assert!(found.is_empty(), "{} findings\n{}\n", found.len(), found.join("\n"));
}

/// A folder with a document, a source and an example.
fn made_up() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = "//! `fn none()`\n#[test]\nfn rows_are_read() {}\n#[test]\nfn rows_are_written() {}\n\
                  fn helper() {}\n#[test]\n#[ignore = \"it takes hours\"]\nfn rows_are_many() {}\n\
                  proptest! { #[test] fn rows_are_right(row in 0..9) {} }\nmod inner { #[test] fn deep() {} }\n";
    for (path, text) in [
        ("docs/a.md", "# Figures\n\n| `w1.read` | 1 |\n"),
        ("tests/rows.rs", source),
        ("examples/rows.rs", "fn main() {}\n"),
    ] {
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    dir
}

/// What is wrong with a table of one row whose second cell is `shown_by`.
fn said(shown_by: &str) -> String {
    let dir = made_up();
    let document =
        format!("| | |\n|---|---|\n| Reads rows | {shown_by} |\n\n[`rows.rs`]: ../tests/rows.rs\n");
    let rows = rows(&document);
    assert_eq!((rows.len(), rows[0].claim.as_str(), rows[0].line), (1, "Reads rows", 3), "{rows:?}");
    mistakes(dir.path(), "docs/b.md", &rows[0]).join("\n")
}

#[test]
fn tests_examples_figures_and_sections_show_a_feature() {
    for shown_by in [
        "[`rows.rs`] `rows_are_read`",
        "[`rows.rs`] `rows_are_w…`",
        "[`rows.rs`] `rows_are_read`, `rows_are_right`, [b](../tests/rows.rs) `deep`",
        "[`rows`](../examples/rows.rs)",
        "[a](a.md) `w1.read`",
        "[a](a.md#figures)",
    ] {
        assert_eq!(said(shown_by), "", "{shown_by}");
    }
}

#[test]
fn a_feature_that_nothing_shows_is_found() {
    for (shown_by, why) in [
        ("", "name what shows it"),
        ("`rows_are_read`", "`rows_are_read` is no link"),
        ("[`none.rs`] `rows_are_read`", "is no link"),
        ("[a](../tests/none.rs) `rows_are_read`", "no "),
        ("[`rows.rs`]", "name the test in ../tests/rows.rs"),
        ("[`rows.rs`] `rows_are_gone`", "has no test `rows_are_gone` that runs"),
        ("[`rows.rs`] `helper`", "has no test `helper` that runs"),
        ("[`rows.rs`] `none`", "has no test `none` that runs"),
        ("[`rows.rs`] `rows_are_many`", "has no test `rows_are_many` that runs"),
        ("[`rows.rs`] `rows_are`", "has no test `rows_are` that runs"),
        ("[`rows.rs`] `are_written…`", "has no test `are_written…` that runs"),
        ("[`rows.rs`] `rows_are_r…`", "has 2 tests `rows_are_r…`: write more of the name"),
        ("[`rows`](../examples/none.rs)", "no "),
        ("[a](a.md) `w2.read`", "`w2.read` is not in a.md"),
        ("[a](a.md#sums)", "no heading `sums`"),
    ] {
        let said = said(shown_by);
        assert!(said.starts_with("docs/b.md:3: Reads rows: ") && said.contains(why), "{shown_by}: {said}");
    }
}
