//! The options of an attribute, `name` or `name = value`, separated by commas: each is read for itself, so
//! that a mistake in one does not hide those in the others.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Expr, ExprLit, Ident, Lit, Meta, Path, Token};

use crate::errors::Errors;
use crate::runtime::Runtime;
use crate::types::peel;

/// One option.
pub(crate) struct Named {
    pub(crate) name: Ident,
    /// What follows the `=`, or is in the parentheses; empty if nothing does.
    pub(crate) value: TokenStream,
    /// Whether the value is in parentheses.
    pub(crate) parenthesized: bool,
}

/// The options in `tokens`. Parts without a name are reported, with what `expected` makes of them.
pub(crate) fn options(
    tokens: TokenStream,
    expected: impl Fn(&TokenStream) -> String,
    errors: &mut Errors,
) -> Vec<Named> {
    let parse = |input: ParseStream<'_>| {
        if !input.peek(Ident::peek_any) {
            let whole: TokenStream = input.parse()?;
            return Err(syn::Error::new_spanned(&whole, expected(&whole)));
        }
        let name = input.call(Ident::parse_any)?;
        if input.is_empty() {
            return Ok(Named { name, value: TokenStream::new(), parenthesized: false });
        }
        if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            return Ok(Named { name, value: content.parse()?, parenthesized: true });
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() {
            return Err(syn::Error::new(name.span(), format!("`{name}` has no value")));
        }
        Ok(Named { name, value: input.parse()?, parenthesized: false })
    };
    split(tokens).into_iter().filter_map(|option| errors.ok(parse.parse2(option))).collect()
}

/// The same, for an attribute `#[tcx(..)]`.
pub(crate) fn tcx_options(attribute: &Attribute, errors: &mut Errors) -> Vec<Named> {
    match &attribute.meta {
        Meta::List(list) => {
            let expected = |_: &TokenStream| "expected an option, as in `#[tcx(crate = my_tcx)]`".to_owned();
            options(list.tokens.clone(), expected, errors)
        }
        other => {
            errors.at(other, "expected options in parentheses, as in `#[tcx(crate = my_tcx)]`");
            Vec::new()
        }
    }
}

/// Reads the `#[tcx(..)]` of an item; `crate` is the only option there.
pub(crate) fn container_options(attributes: &[Attribute], runtime: &mut Runtime, errors: &mut Errors) {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("tcx")) {
        for option in tcx_options(attribute, errors) {
            if option.name == "crate" {
                if let Some(path) = errors.ok(crate_path(&option)) {
                    *runtime = Runtime::renamed(path);
                }
            } else {
                errors.at(&option.name, format!("unknown option `{}`; expected `crate = …`", option.name));
            }
        }
    }
}

/// The parts between the commas; no part after the last one.
pub(crate) fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let (mut parts, mut part) = (Vec::new(), TokenStream::new());
    for token in tokens {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
            parts.push(std::mem::take(&mut part));
        } else {
            part.extend([token]);
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// The value of `crate = …`: a path, or one in quotation marks.
pub(crate) fn crate_path(option: &Named) -> syn::Result<Path> {
    let mistake =
        || syn::Error::new_spanned(&option.value, "expected the path of tcx, as in `crate = my_tcx`");
    if let Ok(Expr::Lit(ExprLit { lit: Lit::Str(path), .. })) = syn::parse2(option.value.clone()).map(peel) {
        return path.parse_with(Path::parse_mod_style).map_err(|_| mistake());
    }
    Path::parse_mod_style.parse2(option.value.clone()).map_err(|_| mistake())
}

/// The candidate that a wrong name was probably meant to be.
pub(crate) fn similar<'a>(wrong: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let distance = |candidate: &&&str| edits(wrong, candidate);
    candidates.iter().min_by_key(distance).filter(|best| edits(wrong, best) <= 2 && best.len() > 2).copied()
}

/// How many letters must be added, removed or changed between two words.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.chars().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}
