//! Where generated code finds tcx: `::tcx`, unless the user has given it another name.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::Path;

/// The path of `tcx::__private`, the one module that generated code names.
#[derive(Clone, Default)]
pub(crate) struct Runtime(Option<Path>);

impl Runtime {
    /// tcx under another path.
    pub(crate) fn renamed(path: Path) -> Self {
        Self(Some(path))
    }
}

impl ToTokens for Runtime {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let tcx = self.0.as_ref().map_or_else(|| quote!(::tcx), ToTokens::to_token_stream);
        tokens.extend(quote!(#tcx::__private));
    }
}
