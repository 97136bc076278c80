//! `#[derive(Stateless)]`, and the part of `#[cached_module]` that is the same: entering a type into the
//! identity, field by field.

mod expand;
mod model;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::errors::Errors;
use crate::options::{crate_path, tcx_options};
use crate::runtime::Runtime;
pub(crate) use expand::{expand, where_stateless};
pub(crate) use model::Shape;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut errors = Errors::default();
    let mut runtime = Runtime::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("tcx")) {
        for option in tcx_options(attribute, &mut errors) {
            if option.name == "crate" {
                runtime = errors.ok(crate_path(&option)).map_or(runtime, Runtime::renamed);
            } else {
                let message = format!("unknown option `{}`; expected `crate = …`", option.name);
                errors.at(&option.name, message);
            }
        }
    }
    let shape = Shape::parse(&input.data, &mut errors);
    let code = expand(&runtime, &input.ident, &input.generics, &shape);
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}
