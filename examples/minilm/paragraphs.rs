//! Splits a document into paragraphs of prose: no code, tables, badges, lists of links, headings.

/// Fewer words than this say too little to be searched for.
const MIN_WORDS: usize = 8;

/// A piece of prose and the line, counted from 1, where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Paragraph {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The paragraphs of a Markdown document, or of plain text, in order. A list item is a paragraph.
pub(crate) fn paragraphs(document: &str) -> Vec<Paragraph> {
    let mut splitter = Splitter::default();
    for (i, line) in document.lines().enumerate() {
        splitter.line(i + 1, line);
    }
    splitter.end();
    splitter.done
}

#[derive(Default)]
struct Splitter {
    done: Vec<Paragraph>,
    /// The paragraph begun: its first line's number and its lines so far.
    begun: Option<(usize, String)>,
    /// Inside a code block: the mark that ends it.
    fence: Option<&'static str>,
    /// In a comment of HTML.
    comment: bool,
}

impl Splitter {
    fn line(&mut self, number: usize, line: &str) {
        let text = line.trim_start().trim_start_matches('>').trim();
        if let Some(fence) = self.fence {
            if text.starts_with(fence) {
                self.fence = None;
            }
        } else if self.comment || text.starts_with("<!--") {
            self.end();
            self.comment = !text.contains("-->");
        } else if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| text.starts_with(fence)) {
            self.end();
            self.fence = Some(fence);
        } else if self.begun.is_none() && is_code(line) || is_no_prose(text) {
            self.end();
        } else if let Some(item) = list_item(text) {
            self.end();
            self.begun = Some((number, item.to_owned()));
        } else if let Some((_, lines)) = &mut self.begun {
            lines.push(' ');
            lines.push_str(text);
        } else {
            self.begun = Some((number, text.to_owned()));
        }
    }

    fn end(&mut self) {
        let Some((line, lines)) = self.begun.take() else { return };
        let text = plain(&lines);
        if is_prose(&text) {
            self.done.push(Paragraph { line, text });
        }
    }
}

/// Indented as code is.
fn is_code(line: &str) -> bool {
    line.starts_with("    ") && list_item(line.trim_start()).is_none() || line.starts_with('\t')
}

/// Blank, a heading, its underline, a rule, a table's row, a link's target, a line of HTML.
fn is_no_prose(text: &str) -> bool {
    let is_target = || text.starts_with('[') && text.contains("]:");
    text.chars().all(|c| "=-*_~ +:.^".contains(c)) || text.starts_with(['#', '|', '<']) || is_target()
}

/// What follows the mark of a list item.
fn list_item(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = match text.len() - digits.len() {
        0 => text.strip_prefix(['-', '*', '+']),
        1..=3 => digits.strip_prefix(['.', ')']),
        _ => None,
    };
    rest.filter(|rest| rest.starts_with([' ', '\t'])).map(str::trim_start)
}

fn is_prose(text: &str) -> bool {
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic)).count();
    let letters = text.chars().filter(|c| c.is_alphabetic() || c.is_whitespace()).count();
    words >= MIN_WORDS && letters * 5 >= text.chars().count() * 4 && !text.contains("://")
}

/// The text as a reader sees it: links by their words only, no images, no tags, no marks of code or bold type.
fn plain(markdown: &str) -> String {
    let mut words = String::with_capacity(markdown.len());
    strip(markdown, &mut words);
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn strip(mut rest: &str, plain: &mut String) {
    while let Some(at) = rest.find(['!', '[', '<', '`', '*']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((_, after)) = rest.strip_prefix('!').and_then(link) {
            rest = after;
        } else if let Some((words, after)) = link(rest) {
            strip(words, plain);
            rest = after;
        } else if let Some((code, after)) = rest.strip_prefix('`').and_then(|rest| rest.split_once('`')) {
            plain.push_str(code);
            rest = after;
        } else if let Some(after) = tag(rest).or_else(|| rest.strip_prefix("**")) {
            rest = after;
        } else {
            plain.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
}

/// The words of a link and what follows it: `[words](target)`, `[words][name]`, `[words]`.
fn link(text: &str) -> Option<(&str, &str)> {
    let (words, after) = bracketed(text, '[', ']')?;
    let after = bracketed(after, '(', ')').or_else(|| bracketed(after, '[', ']')).map_or(after, |it| it.1);
    Some((words, after))
}

/// The text in the brackets that a text begins with, and what follows them.
fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 {
            // Any other start closes nothing.
            return (at > 0).then(|| (&text[1..at], &text[at + 1..]));
        }
    }
    None
}

/// What follows the tag that a text begins with.
fn tag(text: &str) -> Option<&str> {
    let name = text.strip_prefix('<')?.trim_start_matches('/');
    name.starts_with(|c: char| c.is_ascii_lowercase()).then(|| name.split_once('>'))?.map(|(_, after)| after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROSE: &str = "This paragraph has more than eight words of plain text.";

    fn texts(document: &str) -> Vec<String> {
        paragraphs(document).into_iter().map(|paragraph| paragraph.text).collect()
    }

    #[test]
    fn paragraphs_carry_their_first_line() {
        let document = format!(
            "# A title of a document that is long enough\n\n{PROSE}\n\n\nAnd so on, in two\nlines, as one paragraph of text.\n"
        );
        let found = paragraphs(&document);
        assert_eq!(found[0], Paragraph { line: 3, text: PROSE.into() });
        assert_eq!(
            found[1],
            Paragraph { line: 6, text: "And so on, in two lines, as one paragraph of text.".into() }
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn what_is_no_prose_is_left_out() {
        for skipped in [
            "too short",
            "```rust\nThis paragraph has more than eight words of plain text.\n\nAnd this one has even more of them than the other.\n```",
            "    This paragraph has more than eight words of plain text.",
            "| This | paragraph | has | more | than | eight | words | of | text |",
            "[![This badge has](https://a)](https://b) [![more than eight words](https://c)](d) in it",
            "[this]: https://example.org and more than eight words of plain text",
            "<!-- This comment has more than\n\neight words of plain text in it, see? And more. -->",
            "See the list at https://example.org for more than eight words of text",
            "let x = a[1] + b[2] * (c[3] - d[4]) / e[5] % f[6] << g[7] | h[8];",
        ] {
            assert_eq!(texts(skipped), [""; 0], "{skipped}");
        }
    }

    #[test]
    fn what_follows_a_code_block_is_read() {
        assert_eq!(texts(&format!("```\nlet x;\n```\n{PROSE}")), [PROSE]);
        assert_eq!(texts(&format!("<!-- note -->\n{PROSE}")), [PROSE]);
    }

    #[test]
    fn list_items_are_paragraphs() {
        let document = format!("- {PROSE}\n- and {PROSE}\n  It goes on.\n\n12. or {PROSE}\n");
        assert_eq!(
            texts(&document),
            [PROSE.into(), format!("and {PROSE} It goes on."), format!("or {PROSE}")]
        );
    }

    #[test]
    fn marks_are_removed_and_words_stay() {
        let marked = "The [`parse`](https://x.y/z_(w)) function of **[this][1]** crate ![logo](a.png) takes a \
                      `Vec<u8>`, <b>never</b> `&mut [T]`; 2 < 3 and a [b";
        let read = "The parse function of this crate takes a Vec<u8>, never &mut [T]; 2 < 3 and a [b";
        assert_eq!(plain(marked), read);
    }

    #[test]
    fn odd_text_is_read_without_panic() {
        for odd in
            ["[", "]", "![", "[[]", "](", "<", "</", "`", "***", "é[ü](ö", "<é>", "日[本]語", "!", "[](", ""]
        {
            plain(odd);
            paragraphs(odd);
        }
    }
}
