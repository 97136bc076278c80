//! All mistakes of an item, reported together.

use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Collects errors. Panics when dropped unread: a forgotten error would accept what it forbids.
#[derive(Default)]
pub(crate) struct Errors {
    found: Vec<syn::Error>,
    read: bool,
}

impl Errors {
    /// Reports a mistake at the user's tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(tokens, message));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        self.found.push(error);
    }

    /// The value, or its error reported.
    pub(crate) fn ok<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// The errors as code that does not compile; empty if there are none.
    pub(crate) fn into_compile_errors(mut self) -> TokenStream {
        self.read = true;
        self.found.iter().map(syn::Error::to_compile_error).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        assert!(self.read || std::thread::panicking(), "the errors of an item were not reported");
    }
}
