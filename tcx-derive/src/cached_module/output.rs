//! `output(pooled: tensor(f32, [512]), caption: Vec<String>)`: the struct that a module returns, declared where
//! the module is.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Attribute, Field, ItemStruct, Token, Type, Visibility, parse_quote};

use crate::cacheable_output;
use crate::errors::Errors;
use crate::options::{Named, similar};
use crate::runtime::Runtime;
use crate::types::mentions_parameter;

const EXAMPLE: &str = "output(pooled: tensor(f32, [512]), caption: Vec<String>)";

/// The struct and its impls: after a mistake as well, so that its name means something where it is used.
pub(crate) fn expand(
    option: &Named,
    module: &ItemStruct,
    runtime: &Runtime,
    errors: &mut Errors,
) -> TokenStream {
    if !option.parenthesized {
        let message = format!("expected the fields of the output in parentheses, as in `{EXAMPLE}`");
        errors.at(&option.name, message);
        return TokenStream::new();
    }
    let fields = fields(option, module, runtime, errors);
    let visibility = &module.vis;
    let name = format_ident!("{}Output", module.ident, span = option.name.span());
    let doc = format!("What [`{}`] computes, for a batch of samples.", module.ident.unraw());
    let declared = parse_quote!(#visibility struct #name { #(#fields),* });
    let implementation = cacheable_output::inline(&declared, runtime.clone());
    let debug = debug(&name, &fields, runtime);
    let fields = fields.into_iter().map(without_declaration);
    quote! {
        #[doc = #doc]
        #visibility struct #name { #(#fields),* }
        #debug
        #implementation
    }
}

/// A user cannot add a derive to a generated struct: it is `Debug` if its fields are. The unused
/// lifetime keeps the compiler from judging that here.
fn debug(name: &Ident, fields: &[Field], runtime: &Runtime) -> TokenStream {
    let types = fields.iter().map(|field| &field.ty);
    let entries = fields.iter().filter_map(|field| field.ident.as_ref()).map(|ident| {
        let name = ident.unraw().to_string();
        quote!(__debug.field(#name, &self.#ident);)
    });
    let name_text = name.unraw().to_string();
    quote! {
        #[doc(hidden)]
        #[automatically_derived]
        #[allow(deprecated)]
        impl #runtime::fmt::Debug for #name
        where
            #(for<'__tcx> #types: #runtime::fmt::Debug),*
        {
            fn fmt(&self, __formatter: &mut #runtime::fmt::Formatter<'_>) -> #runtime::fmt::Result {
                let mut __debug = #runtime::fmt::Formatter::debug_struct(__formatter, #name_text);
                #(#entries)*
                __debug.finish()
            }
        }
    }
}

/// The field as the struct has it: the derive's attribute has been read.
fn without_declaration(mut field: Field) -> Field {
    field.attrs.retain(|attribute| attribute.path().is_ident("doc"));
    field
}

/// The fields that are understood; mistakes in the others are reported.
fn fields(option: &Named, module: &ItemStruct, runtime: &Runtime, errors: &mut Errors) -> Vec<Field> {
    let parts = split_fields(option.value.clone());
    if parts.is_empty() {
        let message =
            format!("an output without fields stores nothing: add at least one field, as in `{EXAMPLE}`");
        errors.at(&option.name, message);
    }
    let mut fields: Vec<Field> = Vec::new();
    for part in parts {
        let parse = |input: ParseStream<'_>| field(input, &module.vis, runtime);
        let Some(field) = errors.ok(parse.parse2(part.clone())) else { continue };
        if fields.iter().any(|other| other.ident == field.ident) {
            let name = field.ident.to_token_stream();
            errors.at(&name, format!("the output has two fields `{name}`: rename one"));
        } else if mentions_parameter(&part, &module.generics) {
            let message = "an output declared in place cannot use the generic parameters of its module: declare a struct with \
                           `#[derive(CacheableOutput)]`, and name it in `type Output = …;` of the `Extractor`";
            errors.at(&part, message);
        } else {
            fields.push(field);
        }
    }
    fields
}

/// `name: tensor(..)`, `name: tensor(..) as Type` or `name: Type`, after doc comments.
fn field(input: ParseStream<'_>, visibility: &Visibility, runtime: &Runtime) -> syn::Result<Field> {
    let mut attributes = docs(input)?;
    let name = name(input)?;
    let (value, named) = split_type(input.parse()?);
    let ty = match (declaration(&value)?, named) {
        (Some(_), Some(named)) => {
            attributes.push(parse_quote!(#[#value]));
            type_behind(named, &name)?.into_token_stream()
        }
        (Some(tensor), None) => {
            attributes.push(parse_quote!(#[#value]));
            // Spanned at the user's token, as if it had been written there.
            let ty = quote_spanned!(tensor.span()=> #runtime::Tensor);
            if varies(&value) { quote_spanned!(tensor.span()=> #runtime::Vec<#ty>) } else { ty }
        }
        (None, None) => ty(value, &name)?.into_token_stream(),
        (None, Some(named)) => {
            let message =
                "`as` names the type of a tensor, as in `pooled: tensor(f32, [512]) as ndarray::Array2<f32>`";
            return Err(syn::Error::new(named.word.span(), message));
        }
    };
    if !attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
        let doc = format!("The feature `{}` of each sample.", name.unraw());
        attributes.push(parse_quote!(#[doc = #doc]));
    }
    Field::parse_named.parse2(quote!(#(#attributes)* #visibility #name: #ty))
}

/// The word `as` behind a tensor's declaration, and the type behind that.
struct NamedType {
    word: Ident,
    ty: TokenStream,
}

/// The value before `as`, and what `as` names. In a type, `as` is only inside of angle brackets.
fn split_type(value: TokenStream) -> (TokenStream, Option<NamedType>) {
    let mut tokens = value.into_iter();
    let (mut before, mut depth) = (Vec::new(), 0_usize);
    while let Some(token) = tokens.next() {
        match &token {
            TokenTree::Ident(word) if word == "as" && depth == 0 => {
                let named = NamedType { word: word.clone(), ty: tokens.collect() };
                return (before.into_iter().collect(), Some(named));
            }
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before.push(token);
    }
    (before.into_iter().collect(), None)
}

fn type_behind(named: NamedType, name: &Ident) -> syn::Result<Type> {
    if named.ty.is_empty() {
        let message = format!(
            "field `{name}` has no type behind `as`: write `as ndarray::Array2<f32>`, or remove `as`"
        );
        return Err(syn::Error::new(named.word.span(), message));
    }
    ty(named.ty, name)
}

/// A type. What is missing at its end has no place of its own: the whole is reported.
fn ty(value: TokenStream, name: &Ident) -> syn::Result<Type> {
    let whole = value.clone();
    syn::parse2(value).map_err(|error| {
        syn::Error::new_spanned(whole, format!("field `{name}`: this is not a type: {error}"))
    })
}

/// The doc comments before a field, and nothing else.
fn docs(input: ParseStream<'_>) -> syn::Result<Vec<Attribute>> {
    let attributes = input.call(Attribute::parse_outer)?;
    if let Some(other) = attributes.iter().find(|attribute| !attribute.path().is_ident("doc")) {
        let message = "an output declared in place takes no attributes, except doc comments: a tensor is `pooled: \
                       tensor(f32, [512])`";
        return Err(syn::Error::new_spanned(other, message));
    }
    if input.peek(Token![pub]) {
        let message = "fields of an output declared in place have the visibility of the module: remove this";
        return Err(syn::Error::new_spanned(input.parse::<Visibility>()?, message));
    }
    Ok(attributes)
}

/// The name of a field, and the colon after it.
fn name(input: ParseStream<'_>) -> syn::Result<Ident> {
    const EXPECTED: &str = "expected a field, as in `pooled: tensor(f32, [512])` or `caption: Vec<String>`";
    let whole: TokenStream = input.fork().parse()?;
    let mistake = || syn::Error::new_spanned(&whole, EXPECTED);
    let name = input.call(Ident::parse_any).map_err(|_| mistake())?;
    if input.peek(Token![::]) || input.parse::<Token![:]>().is_err() {
        return Err(mistake());
    }
    if input.is_empty() {
        return Err(syn::Error::new(name.span(), format!("field `{name}` has no type; {EXPECTED}")));
    }
    Ok(name)
}

/// The word `tensor` of a tensor's declaration, if the type of a field is one.
fn declaration(value: &TokenStream) -> syn::Result<Option<Ident>> {
    let tokens: Vec<TokenTree> = value.clone().into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(word)] if word == "tensor" => Ok(Some(word.clone())),
        [TokenTree::Ident(word), TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis => {
            let written = word.to_string();
            if written == "tensor" {
                return Ok(Some(word.clone()));
            }
            match similar(&written.to_lowercase(), &["tensor"]) {
                Some(_) => {
                    let message =
                        format!("unknown declaration `{written}`; a tensor is `tensor(f32, [512])`");
                    Err(syn::Error::new(word.span(), message))
                }
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Whether a tensor's declaration has `_` in its shape: then each sample has a tensor of its own.
fn varies(declaration: &TokenStream) -> bool {
    let inside = |tokens: TokenStream| {
        tokens.into_iter().filter_map(|token| match token {
            TokenTree::Group(group) => Some(group.stream()),
            _ => None,
        })
    };
    let mut shape = inside(declaration.clone()).flat_map(inside).flatten();
    shape.any(|dim| matches!(dim, TokenTree::Ident(dim) if dim == "_"))
}

/// The parts between the commas, except those between angle brackets; no part after the last one.
fn split_fields(tokens: TokenStream) -> Vec<TokenStream> {
    let (mut parts, mut part, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for token in tokens {
        let punct = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match punct {
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part).into_iter().collect());
                continue;
            }
            '<' => depth += 1,
            // Not the end of an arrow.
            '>' if !part.last().is_some_and(is_joint_dash) => depth = depth.saturating_sub(1),
            _ => {}
        }
        part.push(token);
    }
    if !part.is_empty() {
        parts.push(part.into_iter().collect());
    }
    parts
}

fn is_joint_dash(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '-')
}
