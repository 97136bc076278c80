//! The arguments in the parentheses of `#[cached_module(..)]`.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens as _;
use syn::{Expr, ExprLit, Ident, Lit, LitStr};

use crate::errors::Errors;
use crate::options::{Named, crate_path, options, similar};
use crate::runtime::Runtime;
use crate::types::peel;

const LONGEST_ID: usize = 100;

pub(crate) struct Arguments {
    pub(crate) runtime: Runtime,
    /// Missing after a mistake, which has been reported.
    pub(crate) id: Option<LitStr>,
    /// The marker of `tcx::__private` that stands for the type of the ids.
    pub(crate) key: &'static str,
    /// The type of the stamps beside the ids, if they have any.
    pub(crate) stamp: Option<&'static str>,
    /// `output(..)`.
    pub(crate) output: Option<Named>,
}

impl Arguments {
    pub(crate) fn parse(tokens: TokenStream, module: &Ident, errors: &mut Errors) -> Self {
        let runtime = Runtime::default();
        let mut parsed = Self { runtime, id: None, key: "StringIds", stamp: None, output: None };
        let mut seen: Vec<String> = Vec::new();
        for option in options(tokens, |part| without_name(part, module), errors) {
            let name = option.name.to_string();
            if seen.contains(&name) {
                errors.at(&option.name, format!("`{name}` is given twice: keep one"));
                continue;
            }
            match name.as_str() {
                "id" => parsed.id = errors.ok(id(&option, module)),
                "key" => parsed.key = errors.ok(key(&option)).unwrap_or(parsed.key),
                "stamp" => parsed.stamp = errors.ok(stamp(&option)),
                "crate" => {
                    if let Some(path) = errors.ok(crate_path(&option)) {
                        parsed.runtime = Runtime::renamed(path);
                    }
                }
                "output" => parsed.output = Some(option),
                _ => errors.at(&option.name, unknown(&name)),
            }
            seen.push(name);
        }
        if errors.is_empty() && !seen.iter().any(|name| name == "id") {
            let message =
                format!("missing the id: write `#[cached_module(id = \"{}_v1\")]`", snake_case(module));
            errors.push(syn::Error::new(Span::call_site(), message));
        }
        parsed
    }
}

/// Most probably it was meant to be the id.
fn without_name(part: &TokenStream, module: &Ident) -> String {
    match syn::parse2(part.clone()).map(peel) {
        Ok(Expr::Lit(ExprLit { lit: Lit::Str(id), .. })) => {
            format!(
                "the id lacks the name of its option: write `id = \"{}\"`",
                suggestion(&id.value(), module)
            )
        }
        _ => format!("expected an option, as in `id = \"{}_v1\"`", snake_case(module)),
    }
}

fn unknown(name: &str) -> String {
    let hint = match similar(name, &["key", "stamp", "output", "crate"]) {
        Some(known) => format!(" (did you mean `{known}`?)"),
        None => String::new(),
    };
    format!("unknown option `{name}`{hint}; expected `id`, `key`, `stamp`, `output` or `crate`")
}

/// A value that must be a string literal, and an id.
fn id(option: &Named, module: &Ident) -> syn::Result<LitStr> {
    let example = format!("id = \"{}_v1\"", snake_case(module));
    let mistake = |message: String| Err(syn::Error::new_spanned(located(option), message));
    if option.value.is_empty() {
        return mistake(format!("the id has no value: write `{example}`"));
    }
    if option.parenthesized {
        return mistake(format!("the id needs an equals sign: write `{example}`"));
    }
    match syn::parse2(option.value.clone()).map(peel) {
        Ok(Expr::Lit(ExprLit { lit: Lit::Str(id), .. })) => match complaint(&id.value()) {
            None => Ok(id),
            Some(complaint) => Err(syn::Error::new(
                id.span(),
                complaint.replace("EXAMPLE", &suggestion(&id.value(), module)),
            )),
        },
        Ok(Expr::Lit(_)) => mistake(format!("expected the id in quotation marks, as in `{example}`")),
        _ => mistake(format!(
            "the id must be a string literal, as in `{example}`: a macro cannot read constants"
        )),
    }
}

/// What a wrong value is reported at.
fn located(option: &Named) -> TokenStream {
    if option.value.is_empty() { option.name.to_token_stream() } else { option.value.clone() }
}

/// What is wrong with an id. It becomes the name of a directory on every operating system.
fn complaint(id: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if id.is_empty() {
        return Some("the id is empty; write `id = \"EXAMPLE\"`".to_owned());
    }
    if let Some(wrong) = id.chars().find(|&c| !allowed(c)) {
        let wrong = if wrong == ' ' { "a space".to_owned() } else { format!("`{}`", wrong.escape_debug()) };
        return Some(format!(
            "the id contains {wrong}: expected ASCII letters, digits, `_`, `-` and `.`; write \
             `id = \"EXAMPLE\"`"
        ));
    }
    if !id.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some("an id begins with a letter or a digit; write `id = \"EXAMPLE\"`".to_owned());
    }
    if id.len() > LONGEST_ID {
        return Some(format!("the id has {} bytes, expected at most {LONGEST_ID}", id.len()));
    }
    None
}

/// The nearest id that would do.
fn suggestion(wrong: &str, module: &Ident) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let words: Vec<_> = wrong.split(|c| !word(c)).filter(|word| !word.is_empty()).collect();
    let id = words.join("_");
    let id = id.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if id.is_empty() { format!("{}_v1", snake_case(module)) } else { id.to_owned() }
}

fn key(option: &Named) -> syn::Result<&'static str> {
    let written = option.value.to_string().replace(' ', "");
    let hint = match written.as_str() {
        "i64" => return Ok("I64Ids"),
        "bytes" => return Ok("BytesIds"),
        "String" | "str" | "string" | "&str" => return Ok("StringIds"),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "isize" | "i128" | "u128" | "int" => {
            " (`key = i64` takes `i32`, `u32`, `u64` and `usize` too)"
        }
        "Path" | "PathBuf" | "&Path" => " (a path is a string: leave `key` out)",
        "Uuid" | "uuid" | "[u8;16]" | "Vec<u8>" | "&[u8]" => " (a UUID is its 16 bytes: `key = bytes`)",
        _ => "",
    };
    let message =
        format!("ids cannot be `{written}`{hint}; expected `String` (the default), `i64` or `bytes`");
    Err(syn::Error::new_spanned(located(option), message))
}

fn stamp(option: &Named) -> syn::Result<&'static str> {
    let written = option.value.to_string().replace(' ', "");
    let hint = match written.as_str() {
        "u64" => return Ok("u64"),
        "bytes" => return Ok("bytes"),
        "u8" | "u16" | "u32" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" | "SystemTime" => {
            " (a number or a time is a `u64`)"
        }
        "String" | "str" | "&str" | "Vec<u8>" | "[u8]" | "&[u8]" => {
            " (a text or a hash is its bytes: `stamp = bytes`)"
        }
        _ => "",
    };
    let message = format!("stamps cannot be `{written}`{hint}; expected `u64` or `bytes`");
    Err(syn::Error::new_spanned(located(option), message))
}

/// `ResNet50` as `res_net50`.
fn snake_case(ident: &Ident) -> String {
    let mut snake = String::new();
    let mut before = '_';
    for c in ident.to_string().trim_start_matches("r#").chars() {
        if c.is_uppercase() && before.is_lowercase() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
        before = c;
    }
    snake
}
