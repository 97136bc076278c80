//! `#[derive(CacheableOutput)]`: parse, check, expand.

mod check;
mod expand;
mod model;
mod tensor;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::errors::Errors;
use model::Output;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    let output = Output::parse(input, &mut errors);
    check::check(&output, &mut errors);
    let code =
        if errors.is_empty() && output.is_clear() { expand::expand(&output) } else { expand::stub(&output) };
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}
