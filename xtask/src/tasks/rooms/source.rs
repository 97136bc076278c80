//! The paths in a source file that lead to other modules of its crate, and the modules it declares.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The conditions that only hold while tests or fuzzers are compiled.
const ONLY_FOR_TESTS: [&str; 2] = ["test", "fuzzing"];
/// The feature that only tests of other crates ask for.
const FEATURE_FOR_TESTS: &str = "\"testing\"";
/// The words that begin an item. An item ends with a semicolon or a block, a field or match arm with a comma.
const ITEMS: [&str; 14] = [
    "async", "const", "enum", "extern", "fn", "impl", "mod", "static", "struct", "trait", "type", "union",
    "unsafe", "use",
];

/// What is found in a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The module's path from the root of the crate on.
    pub(super) own: Vec<String>,
    pub(super) paths: Vec<ModulePath>,
    pub(super) modules: Vec<Module>,
    /// The macros that `macro_rules!` defines: with `#[macro_export]` they have their names at the root.
    pub(super) macros: Vec<String>,
}

/// A path that begins with `crate`, `self` or `super`, from the root of the crate on.
#[derive(Debug, PartialEq)]
pub(super) struct ModulePath {
    pub(super) segments: Vec<String>,
    /// The module that has it.
    pub(super) from: Vec<String>,
    pub(super) line: usize,
    /// The name that a `use` gives it in the module that declares it.
    pub(super) imported_as: Option<String>,
}

/// A module that is declared.
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    /// Its path from the root of the crate on.
    pub(super) path: Vec<String>,
    /// The value of its attribute `path`.
    pub(super) file: Option<String>,
    /// Whether its text follows in braces.
    pub(super) is_inline: bool,
}

impl Source {
    /// Reads the text of the module `own`, without what is compiled for tests alone.
    pub(super) fn parse(text: &str, own: &[String]) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{error}"))?;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut source = Self { own: own.to_vec(), ..Self::default() };
        if !is_test_file(&tokens) {
            Walk { source: &mut source, own: own.to_vec() }.walk(&tokens);
        }
        Ok(source)
    }
}

/// Whether the file begins with `#![cfg(test)]`.
pub(in crate::tasks) fn is_test_file(tokens: &[TokenTree]) -> bool {
    let mut at = 0;
    while let [hash, not, TokenTree::Group(attribute), ..] = &tokens[at..] {
        if !is(hash, '#') || !is(not, '!') {
            return false;
        }
        if is_for_tests(attribute) {
            return true;
        }
        at += 3;
    }
    false
}

struct Walk<'a> {
    source: &'a mut Source,
    /// The path of the module that is read.
    own: Vec<String>,
}

impl Walk<'_> {
    fn walk(&mut self, tokens: &[TokenTree]) {
        let (mut at, mut file) = (0, None);
        while at < tokens.len() {
            match &tokens[at..] {
                [hash, TokenTree::Group(attribute), ..] if is(hash, '#') => {
                    if is_for_tests(attribute) {
                        at += 2 + len_of_item(&tokens[at + 2..]);
                    } else {
                        file = file.or_else(|| path_attribute(attribute));
                        at += 2;
                    }
                    continue;
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), next, ..] if word == "mod" => {
                    let mut path = self.own.clone();
                    path.push(name.to_string());
                    if let TokenTree::Group(body) = next {
                        let inside: Vec<TokenTree> = body.stream().into_iter().collect();
                        Walk { source: self.source, own: path.clone() }.walk(&inside);
                    }
                    let is_inline = matches!(next, TokenTree::Group(_));
                    self.source.modules.push(Module { path, file: file.take(), is_inline });
                    at += 3;
                    continue;
                }
                [TokenTree::Ident(word), _, TokenTree::Ident(name), ..] if word == "macro_rules" => {
                    self.source.macros.push(name.to_string());
                }
                // What a macro expands to is the code of its caller.
                [dollar, TokenTree::Ident(word), colon, ..]
                    if is(dollar, '$') && word == "crate" && is(colon, ':') =>
                {
                    at += 1 + path(&tokens[at + 1..]).1;
                    continue;
                }
                [TokenTree::Ident(word), ..] if word == "use" => {
                    let end = tokens[at..]
                        .iter()
                        .position(|token| is(token, ';'))
                        .map_or(tokens.len(), |len| at + len);
                    self.tree(&[], &tokens[at + 1..end]);
                    at = end;
                }
                [TokenTree::Ident(_), colon, again, ..] if is(colon, ':') && is(again, ':') => {
                    let (segments, len) = path(&tokens[at..]);
                    // A call of a macro that the text above defines.
                    let is_macro =
                        segments.len() == 2 && tokens.get(at + len).is_some_and(|token| is(token, '!'));
                    if !is_macro {
                        self.add(&segments, tokens[at].span().start().line, None);
                    }
                    at += len;
                    continue;
                }
                // `pub(in crate::room)` says who may use the item, and uses nothing.
                [TokenTree::Group(group), ..] if !begins_with(group, "in") => {
                    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.walk(&inside);
                }
                _ => {}
            }
            if !matches!(&tokens[at..], [TokenTree::Ident(word), ..] if word == "pub") {
                file = None;
            }
            at += 1;
        }
    }

    /// A tree of imports.
    fn tree(&mut self, prefix: &[String], tokens: &[TokenTree]) {
        for branch in tokens.split(|token| is(token, ',')) {
            let mut segments = prefix.to_vec();
            let mut renamed = None;
            let mut tokens = branch.iter();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(word) if word == "as" => {
                        renamed = tokens.next().map(ToString::to_string);
                    }
                    TokenTree::Ident(segment) => segments.push(segment.to_string()),
                    TokenTree::Punct(punct) if punct.as_char() == '*' => segments.push("*".to_owned()),
                    TokenTree::Group(group) => {
                        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.tree(&segments, &inside);
                        segments.clear();
                    }
                    _ => {}
                }
            }
            if segments.last().is_some_and(|last| last == "self") && segments.len() > 1 {
                segments.pop();
            }
            if let (Some(first), Some(last)) = (branch.first(), segments.last()) {
                let name = renamed.or_else(|| Some(last.clone()));
                self.add(&segments, first.span().start().line, name);
            }
        }
    }

    fn add(&mut self, segments: &[String], line: usize, imported_as: Option<String>) {
        let relative =
            segments.iter().take_while(|segment| matches!(segment.as_str(), "self" | "super")).count();
        let full = match segments.first().map(String::as_str) {
            Some("crate") => segments[1..].to_vec(),
            Some("self" | "super") => {
                let ups = segments[..relative].iter().filter(|segment| *segment == "super").count();
                let above = &self.own[..self.own.len().saturating_sub(ups)];
                [above, &segments[relative..]].concat()
            }
            // In the root file itself, rooms go by their bare names.
            Some(_) if self.own.is_empty() && imported_as.is_some() => segments.to_vec(),
            _ => return,
        };
        self.source.paths.push(ModulePath { segments: full, from: self.own.clone(), line, imported_as });
    }
}

/// The segments of the path that the tokens begin with, and the number of its tokens.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let mut segments = Vec::new();
    let mut len = 0;
    while let [TokenTree::Ident(segment), rest @ ..] = &tokens[len..] {
        segments.push(segment.to_string());
        len += 1;
        match rest {
            [colon, again, TokenTree::Ident(_), ..] if is(colon, ':') && is(again, ':') => len += 2,
            _ => break,
        }
    }
    (segments, len)
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

fn begins_with(group: &Group, word: &str) -> bool {
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(first)) if first == word)
}

/// Whether an attribute is `cfg` of something that only tests are compiled with.
pub(in crate::tasks) fn is_for_tests(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(name), TokenTree::Group(condition)] = &tokens[..] else { return false };
    name == "cfg" && holds_in_tests_alone(&condition.stream().into_iter().collect::<Vec<_>>())
}

fn holds_in_tests_alone(condition: &[TokenTree]) -> bool {
    match condition {
        [TokenTree::Ident(word)] => ONLY_FOR_TESTS.iter().any(|only| word == only),
        [TokenTree::Ident(word), equals, TokenTree::Literal(value)] if word == "feature" => {
            is(equals, '=') && value.to_string() == FEATURE_FOR_TESTS
        }
        [TokenTree::Ident(word), TokenTree::Group(group)] => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            let mut parts = inside.split(|token| is(token, ',')).filter(|part| !part.is_empty());
            match word.to_string().as_str() {
                "all" => parts.any(holds_in_tests_alone),
                "any" => parts.all(holds_in_tests_alone),
                _ => false,
            }
        }
        _ => false,
    }
}

fn path_attribute(attribute: &Group) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(name), _, TokenTree::Literal(value)] = &tokens[..] else { return None };
    (name == "path").then(|| value.to_string().trim_matches('"').to_owned())
}

/// The tokens of the item, field, arm or statement that follows an attribute.
pub(in crate::tasks) fn len_of_item(tokens: &[TokenTree]) -> usize {
    let mut word = None;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) if word.is_none() => {
                word = ITEMS.iter().find(|item| ident == *item);
            }
            // The braces of some items are not their end.
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace
                    && !matches!(word, Some(&("use" | "const" | "static" | "type"))) =>
            {
                return at + 1;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
            TokenTree::Punct(punct) if punct.as_char() == ',' && word.is_none() => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}
