//! Texts as words with their lines: documents, and the messages and documentation comments of sources.

use proc_macro2::{TokenStream, TokenTree};

use crate::tasks::rooms::{is_for_tests, is_test_file, len_of_item};

/// A word of a text.
#[derive(Debug, PartialEq)]
pub(super) struct Word {
    pub(super) line: usize,
    /// In small letters, without signs around it.
    pub(super) text: String,
    /// Whether a sentence, a clause or a paragraph begins here.
    pub(super) begins: bool,
}

/// Appends the words of `text`, which begins on `line`.
fn push(words: &mut Vec<Word>, line: usize, text: &str) {
    let mut begins = words.is_empty();
    for (number, text) in text.split('\n').enumerate() {
        begins |= text.trim().is_empty();
        for part in text.split_whitespace() {
            // A path is a name, and no prose.
            let part = part.replace("::", "_");
            for (index, text) in
                part.split(|c: char| !(c.is_alphanumeric() || "_-'’".contains(c))).enumerate()
            {
                begins |= index > 0;
                if !text.is_empty() {
                    words.push(Word { line: line + number, text: text.to_lowercase(), begins });
                    begins = false;
                }
            }
        }
    }
}

/// The words of a document.
pub(super) fn of_document(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    push(&mut words, 1, text);
    words
}

/// The texts of a source: each string, and the lines of each documentation comment. What is compiled for tests alone is left
/// out.
pub(super) fn of_source(text: &str) -> Result<Vec<Vec<Word>>, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut texts = Vec::new();
    if !is_test_file(&tokens) {
        walk(&tokens, &mut texts);
    }
    Ok(texts)
}

fn walk(tokens: &[TokenTree], texts: &mut Vec<Vec<Word>>) {
    let mut comment: Vec<Word> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut is_comment = false;
        match &tokens[at..] {
            [TokenTree::Punct(hash), TokenTree::Group(attribute), ..]
                if hash.as_char() == '#' && is_for_tests(attribute) =>
            {
                at += 1 + len_of_item(&tokens[at + 2..]);
            }
            [TokenTree::Ident(name), TokenTree::Punct(_), TokenTree::Literal(line)] if name == "doc" => {
                let words = string(line.span().start().line, &line.to_string());
                texts.push(words);
                return;
            }
            [TokenTree::Punct(sign), ..] if matches!(sign.as_char(), '#' | '!') => is_comment = true,
            [TokenTree::Group(group), ..] => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let before = texts.len();
                walk(&inside, texts);
                if is_documentation(&inside) {
                    let line: Vec<Word> = texts.drain(before..).flatten().collect();
                    if !continues(&comment, &line) {
                        texts.push(std::mem::take(&mut comment));
                    }
                    comment.extend(line);
                    is_comment = true;
                }
            }
            [TokenTree::Literal(literal), ..] => {
                texts.push(string(literal.span().start().line, &literal.to_string()));
            }
            _ => {}
        }
        if !is_comment && !comment.is_empty() {
            texts.push(std::mem::take(&mut comment));
        }
        at += 1;
    }
    texts.extend((!comment.is_empty()).then_some(comment));
}

/// Whether a line of a documentation comment follows on those before it.
fn continues(comment: &[Word], line: &[Word]) -> bool {
    match (comment.last(), line.first()) {
        (Some(last), Some(first)) => first.line == last.line + 1,
        _ => true,
    }
}

/// Whether these are the tokens of an attribute that a documentation comment is read as.
fn is_documentation(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Ident(name), _, TokenTree::Literal(_)] if name == "doc")
}

/// The words of a string literal. Other literals have no words.
fn string(line: usize, literal: &str) -> Vec<Word> {
    let mut words = Vec::new();
    if literal.starts_with('"') || literal.starts_with('r') {
        let text = literal.replace("\\n", " . ").replace(['\\'], " ");
        push(&mut words, line, &text);
    }
    words
}

/// The numbers of the lines of a document that are too long and could be broken. Tables, headings, code and pictures
/// cannot be broken.
pub(super) fn too_long(document: &str, columns: usize) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in document.lines().enumerate() {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let cannot_break = is_code || is_fence || text.starts_with(['|', '#', '<', '!']);
        if !cannot_break && line.chars().count() > columns && parts(text) > 1 {
            found.push(number + 1);
        }
    }
    found
}

/// The parts that a line can be broken into: white space within code is no place for a break, nor is that behind the mark of a
/// list.
fn parts(line: &str) -> usize {
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || "-*. ".contains(c));
    let outside: String =
        line.split('`').enumerate().map(|(index, text)| if index % 2 == 0 { text } else { "code" }).collect();
    outside.split_whitespace().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(usize, String)> {
        let joined = |words: &Vec<Word>| words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
        let texts = of_source(source).unwrap();
        texts.iter().filter(|words| !words.is_empty()).map(|words| (words[0].line, joined(words))).collect()
    }

    #[test]
    fn strings_and_documentation_comments_are_texts() {
        let source = "//! A room.\n\n/// Opens\n/// it.\nfn open() {\n    // Not a text.\n    let b = b\"no\";\n    \
                      say(\"cannot open: \\\n         try again\", 'c', 1);\n}\n";
        assert_eq!(
            texts(source),
            [(1, "a room".to_owned()), (3, "opens it".to_owned()), (8, "cannot open try again".to_owned())]
        );
    }

    #[test]
    fn what_is_compiled_for_tests_alone_is_no_text() {
        assert_eq!(
            texts("#[cfg(test)]\nmod tests {\n    const A: &str = \"a\";\n}\nconst B: &str = \"b\";\n"),
            [(5, "b".to_owned())]
        );
        assert_eq!(texts("#![cfg(test)]\nconst A: &str = \"a\";\n"), []);
    }

    #[test]
    fn lines_that_can_be_broken_are_too_long() {
        let long = "word ".repeat(30);
        let code = format!("`{long}`");
        let document =
            format!("{long}\n| {long} |\n- {code}\n- {code} x\n```text\n{long}\n```\nshort\n# {long}\n");
        assert_eq!(too_long(&document, 100), [1, 4]);
    }
}
