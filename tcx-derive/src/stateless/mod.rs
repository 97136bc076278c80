//! `#[derive(Stateless)]`, and the part of `#[cached_module]` that is the same: entering a type into the
//! identity, field by field.

mod bounds;
mod expand;
mod model;

use proc_macro2::{Span, TokenStream};
use syn::{DeriveInput, PathSegment};

use crate::errors::Errors;
use crate::options::container_options;
use crate::runtime::Runtime;
pub(crate) use bounds::where_stateless;
pub(crate) use expand::expand;
pub(crate) use model::{Shape, has_hidden_option};

/// What to do with a derive beside `#[cached_module]`, on whichever side.
pub(crate) const IS_STATELESS_ALREADY: &str =
    "`#[cached_module]` makes the struct `Stateless` already: remove this derive";

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    if refuse_module(input, &mut errors) {
        return errors.into_compile_errors();
    }
    let mut runtime = Runtime::default();
    container_options(&input.attrs, &mut runtime, &mut errors);
    let shape = Shape::parse(&input.data, &mut errors);
    let code = expand(&runtime, &input.ident, &input.generics, &shape);
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}

/// Beside `#[cached_module]`, which is expanded later if the derive is written above it, there would be two impls.
fn refuse_module(input: &DeriveInput, errors: &mut Errors) -> bool {
    let is_attribute = |segment: &PathSegment| segment.ident == "cached_module";
    let is_module = input.attrs.iter().any(|own| own.path().segments.last().is_some_and(is_attribute));
    if is_module {
        errors.push(syn::Error::new(Span::call_site(), IS_STATELESS_ALREADY));
    }
    is_module
}
