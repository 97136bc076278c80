//! `#[derive(Stateless)]`, and the part of `#[cached_module]` that is the same: entering a type into the
//! identity, field by field.

mod expand;
mod model;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::errors::Errors;
use crate::options::container_options;
use crate::runtime::Runtime;
pub(crate) use expand::{expand, where_stateless};
pub(crate) use model::Shape;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    let mut runtime = Runtime::default();
    container_options(&input.attrs, &mut runtime, &mut errors);
    let shape = Shape::parse(&input.data, &mut errors);
    let code = expand(&runtime, &input.ident, &input.generics, &shape);
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}
