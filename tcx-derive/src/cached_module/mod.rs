//! `#[cached_module(id = "…")]`: parse, check, expand.

mod arguments;
mod expand;
mod output;

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::{Fields, Ident, Item, ItemStruct, Path, Token, parse_quote};

use crate::errors::Errors;
use crate::stateless::{IS_STATELESS_ALREADY, has_hidden_option};
use arguments::Arguments;

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = match syn::parse2::<Item>(item.clone()) {
        Ok(Item::Struct(item)) => item,
        Ok(other) => return misplaced(&other),
        // Not even an item: the compiler has more to say about it than we do.
        Err(_) => return item,
    };
    let mut errors = Errors::default();
    refuse_derive(&mut item, &mut errors);
    refuse_name(&item.ident, &mut errors);
    let arguments = Arguments::parse(arguments, &item.ident, &mut errors);
    let code = expand::expand(&arguments, &item, &mut errors);
    let output = arguments
        .output
        .as_ref()
        .map(|option| output::expand(option, &item, &arguments.runtime, &mut errors));
    let item = without_options(item);
    let errors = errors.into_compile_errors();
    quote!(#item #errors #output #code)
}

/// The attribute on anything but a struct: an error, and the item as it was.
fn misplaced(item: &Item) -> TokenStream {
    let what = match item {
        Item::Enum(_) => "an enum",
        Item::Fn(_) => "a function",
        Item::Impl(_) => "an `impl`",
        Item::Trait(_) => "a trait",
        Item::Union(_) => "a union",
        Item::Type(_) => "a type alias",
        Item::Mod(_) => "a module",
        _ => "this",
    };
    let mut errors = Errors::default();
    let message = format!(
        "`#[cached_module]` goes on the struct that holds the network and its settings, not on {what}"
    );
    errors.push(syn::Error::new(proc_macro2::Span::call_site(), message));
    let mut tokens = errors.into_compile_errors();
    item.to_tokens(&mut tokens);
    tokens
}

/// Two impls of one trait would be the compiler's complaint, at tokens the user never wrote: the derive is reported,
/// and taken away.
fn refuse_derive(item: &mut ItemStruct, errors: &mut Errors) {
    for attribute in item.attrs.iter_mut().filter(|attribute| attribute.path().is_ident("derive")) {
        let derives = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated);
        // A derive that cannot be read is reported by the compiler.
        let Ok(derives) = derives else { continue };
        let is_refused =
            |derive: &Path| derive.segments.last().is_some_and(|segment| segment.ident == "Stateless");
        let (refused, others): (Vec<_>, Vec<_>) = derives.iter().partition(|derive| is_refused(derive));
        for derive in &refused {
            errors.at(derive, IS_STATELESS_ALREADY);
        }
        if !refused.is_empty() {
            *attribute = parse_quote!(#[derive(#(#others),*)]);
        }
    }
}

/// Rows of a table have this name in their identity: those of a module with the same id would be served for them.
fn refuse_name(name: &Ident, errors: &mut Errors) {
    if name.unraw() == "table" {
        let message = "a module cannot be named `table`, which is how the identities of tables begin: \
                       rename the struct, such as to `Table`";
        errors.at(name, message);
    }
}

/// The struct without `#[tcx(..)]`, which means nothing to the compiler, and without what hides one, which is reported.
fn without_options(mut item: ItemStruct) -> ItemStruct {
    let fields = match &mut item.fields {
        Fields::Named(fields) => &mut fields.named,
        Fields::Unnamed(fields) => &mut fields.unnamed,
        Fields::Unit => return item,
    };
    for field in fields {
        field.attrs.retain(|attribute| !attribute.path().is_ident("tcx") && !has_hidden_option(attribute));
    }
    item
}
