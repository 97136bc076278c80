//! The macros of tcx. Use them through the crate `tcx`, which re-exports them.
//!
//! Each works in three stages: it parses the item into a model of its own, checks the model, and expands it into
//! thin code that calls `tcx::__private`. All mistakes are reported at once, each at the tokens that made it.

mod cacheable_output;
mod cached_module;
mod errors;
mod options;
mod runtime;
mod stateless;
#[cfg(test)]
mod tests;
mod types;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a `CacheableOutput`. Documented at `tcx::CacheableOutput`.
#[proc_macro_derive(CacheableOutput, attributes(tensor, tcx))]
pub fn derive_cacheable_output(input: TokenStream) -> TokenStream {
    cacheable_output::derive(&parse_macro_input!(input as DeriveInput)).into()
}

/// Makes an `Extractor` a cached module. Documented at `tcx::cached_module`.
#[proc_macro_attribute]
pub fn cached_module(arguments: TokenStream, item: TokenStream) -> TokenStream {
    cached_module::expand(arguments.into(), item.into()).into()
}

/// Makes a struct or an enum `Stateless`. Documented at `tcx::Stateless`.
#[proc_macro_derive(Stateless, attributes(tcx))]
pub fn derive_stateless(input: TokenStream) -> TokenStream {
    stateless::derive(&parse_macro_input!(input as DeriveInput)).into()
}
