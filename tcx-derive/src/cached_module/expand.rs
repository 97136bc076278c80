//! The generated code: the module's identity, its id, and an entry in the list of all ids.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{ItemStruct, parse_quote};

use super::arguments::Arguments;
use crate::errors::Errors;
use crate::stateless::{self, Shape};

pub(crate) fn expand(arguments: &Arguments, item: &ItemStruct, errors: &mut Errors) -> TokenStream {
    let (runtime, name) = (&arguments.runtime, &item.ident);
    let shape = Shape::of(&item.fields, errors);
    let stateless = stateless::expand(runtime, name, &item.generics, &shape);
    let mut generics = stateless::where_stateless(runtime, name, &item.generics, &shape);
    if !item.generics.params.is_empty() {
        // Which parameters it is an extractor for is known where it is used.
        let (_, ty_generics, _) = item.generics.split_for_impl();
        let bound = parse_quote!(#name #ty_generics: #runtime::Extractor);
        generics.make_where_clause().predicates.push(bound);
    }
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let key = format_ident!("{}", arguments.key);
    let key = match arguments.stamp {
        None => quote!(#runtime::#key),
        Some("u64") => quote!(#runtime::Stamped<#runtime::#key, #runtime::u64>),
        Some(_) => quote!(#runtime::Stamped<#runtime::#key, [#runtime::u8]>),
    };
    let (id, registration) = match &arguments.id {
        Some(id) => (quote!(#id), quote!(#runtime::register_module! { #id })),
        None => (quote!(""), TokenStream::new()),
    };
    quote! {
        #stateless

        #[doc(hidden)]
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #runtime::CachedModule for #name #ty_generics #where_clause {
            const ID: &'static #runtime::str = #id;
            type Key = #key;
        }

        #registration
    }
}
