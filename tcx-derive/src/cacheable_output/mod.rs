//! `#[derive(CacheableOutput)]`, and the part of `#[cached_module(output(..))]` that is the same: parse, check,
//! expand.

mod check;
mod expand;
mod form;
mod model;
mod tensor;
mod variants;

use proc_macro2::TokenStream;
use syn::{Data, DeriveInput};

use crate::errors::Errors;
use crate::runtime::Runtime;
use form::Form;
use model::Output;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    match &input.data {
        Data::Enum(data) => variants::implement(input, data, Runtime::default()),
        _ => implement(input, Form::Derive, Runtime::default()),
    }
}

/// The impl for the struct of an inline output.
pub(crate) fn inline(output: &DeriveInput, runtime: Runtime) -> TokenStream {
    implement(output, Form::Inline, runtime)
}

fn implement(input: &DeriveInput, form: Form, runtime: Runtime) -> TokenStream {
    let mut errors = Errors::default();
    let output = Output::parse(input, form, runtime, &mut errors);
    check::check(&output, &mut errors);
    let code =
        if errors.is_empty() && output.is_clear() { expand::expand(&output) } else { expand::stub(&output) };
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}
