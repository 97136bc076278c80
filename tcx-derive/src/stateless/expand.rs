//! The generated code: an assertion per field, and an impl that enters each of them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{GenericParam, Generics, Ident};

use super::bounds::{Bounds, bounds};
use super::model::{Shape, StateField};
use crate::runtime::Runtime;
use crate::types::{mentions_parameter, without_self};

pub(crate) fn expand(runtime: &Runtime, name: &Ident, generics: &Generics, shape: &Shape<'_>) -> TokenStream {
    let assertions = assertions(runtime, name, generics, shape);
    let parameters = parameters(runtime, generics);
    let type_name = name.unraw().to_string();
    let body = match shape {
        Shape::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                let member = &field.member;
                enter(runtime, field, &quote!(&self.#member))
            });
            quote! {
                #runtime::Identity::type_name(__identity, #type_name);
                #parameters
                #(#fields)*
            }
        }
        Shape::Enum(variants) => {
            let arms = variants
                .iter()
                .map(|(variant, fields)| arm(runtime, &type_name, variant, fields, &parameters));
            quote!(match *self { #(#arms)* })
        }
    };
    let Bounds { generics, items } = bounds(runtime, name, generics, shape);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[allow(deprecated)]
        const _: () = {
            #assertions
            #items

            #[doc(hidden)]
            #[automatically_derived]
            impl #impl_generics #runtime::Stateless for #name #ty_generics #where_clause {
                fn identity(&self, __identity: &mut #runtime::Identity) {
                    use #runtime::{EnterAny as _, EnterStateless as _};
                    #body
                }
            }
        };
    }
}

/// The variant's name, then its fields.
fn arm(
    runtime: &Runtime,
    type_name: &str,
    variant: &Ident,
    fields: &[StateField<'_>],
    parameters: &TokenStream,
) -> TokenStream {
    let name = format!("{type_name}::{}", variant.unraw());
    let entered: Vec<_> =
        fields.iter().filter(|field| !field.not_identity && !field.assume_stateless).collect();
    let bindings = entered.iter().enumerate().map(|(index, field)| {
        let (member, binding) = (&field.member, format_ident!("__field{index}"));
        quote!(#member: ref #binding)
    });
    let mut index = 0;
    let entries = fields.iter().map(|field| {
        let binding = format_ident!("__field{index}");
        index += usize::from(!field.not_identity && !field.assume_stateless);
        enter(runtime, field, &quote!(#binding))
    });
    quote! {
        Self::#variant { #(#bindings,)* .. } => {
            #runtime::Identity::type_name(__identity, #name);
            #parameters
            #(#entries)*
        }
    }
}

/// Enters one field. A field whose type is not Stateless is reported by its assertion, and must not be a second
/// error here: `Enter` takes any type.
fn enter(runtime: &Runtime, field: &StateField<'_>, value: &TokenStream) -> TokenStream {
    let (name, cfg) = (&field.name, &field.cfg);
    if field.not_identity {
        TokenStream::new()
    } else if field.assume_stateless {
        quote!(#(#cfg)* #runtime::assumed_stateless(__identity, #name);)
    } else {
        quote!(#(#cfg)* (&#runtime::Enter(#value)).__tcx_enter(#name, __identity);)
    }
}

/// What the type's constant and type parameters stand for.
fn parameters(runtime: &Runtime, generics: &Generics) -> TokenStream {
    let parameters = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Const(parameter) => {
            let (ident, name) = (&parameter.ident, parameter.ident.to_string());
            quote!(#runtime::Identity::const_parameter(__identity, #name, &#ident);)
        }
        GenericParam::Type(parameter) => {
            let (ident, name) = (&parameter.ident, parameter.ident.to_string());
            quote!(#runtime::Identity::type_parameter::<#ident>(__identity, #name);)
        }
        GenericParam::Lifetime(_) => TokenStream::new(),
    });
    parameters.collect()
}

/// Statements that do not compile if a field is not Stateless. Each carries the tokens of the field's type, so
/// that the error is reported there. They are in a function, which can have the lifetimes of the type.
fn assertions(runtime: &Runtime, name: &Ident, generics: &Generics, shape: &Shape<'_>) -> TokenStream {
    let (_, ty_generics, _) = generics.split_for_impl();
    let own = quote!(#name #ty_generics);
    let fields = shape.fields();
    let checked =
        fields.iter().filter(|field| !field.assume_stateless && !mentions_parameter(field.ty, generics));
    let assertions = checked.map(|field| {
        let ty = without_self(field.ty, &own);
        (&field.cfg, quote!(#runtime::assert_stateless::<#ty>();))
    });
    let (cfgs, assertions): (Vec<_>, Vec<_>) = assertions.unzip();
    let lifetimes = generics.params.iter().filter(|parameter| matches!(parameter, GenericParam::Lifetime(_)));
    let lifetimes: Vec<_> = lifetimes.collect();
    if lifetimes.is_empty() {
        return quote!(#(#(#cfgs)* const _: () = #assertions)*);
    }
    quote! {
        #[allow(dead_code, unused_lifetimes)]
        fn __assert_stateless<#(#lifetimes),*>() {
            #(#(#cfgs)* #assertions)*
        }
    }
}
