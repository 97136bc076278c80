//! The bounds of the generated impl: fields whose types mention a parameter cannot be judged before the parameters are known.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{GenericParam, Generics, Ident, WherePredicate, parse_quote};

use super::model::{Shape, StateField};
use crate::runtime::Runtime;
use crate::types::{mentions, mentions_parameter, without_self};

/// What is not known of the fields before the parameters are.
pub(super) struct Bounds {
    /// The generics with a bound for each field.
    pub(super) generics: Generics,
    /// What the bounds refer to, and assertions of what they do not say.
    pub(super) items: TokenStream,
}

pub(super) fn bounds(runtime: &Runtime, name: &Ident, generics: &Generics, shape: &Shape<'_>) -> Bounds {
    let fields = shape.fields().into_iter();
    let open: Vec<_> = fields.filter(|f| !f.assume_stateless && mentions_parameter(f.ty, generics)).collect();
    let mut bounds = Bounds { generics: generics.clone(), items: TokenStream::new() };
    if open.is_empty() {
        return bounds;
    }
    bounds.generics.make_where_clause();
    let (recursive, others): (Vec<_>, Vec<_>) =
        open.into_iter().partition(|field| mentions(field.ty, &[name, &of_itself()]));
    for (index, field) in others.into_iter().enumerate() {
        bounds.require(runtime, name, generics, (index, field));
    }
    for field in &recursive {
        bounds.require_parameters(runtime, generics, field);
    }
    bounds.assert_recursive(runtime, name, &recursive);
    bounds
}

/// The generics with bounds that say as much, for code beside that of the derive. Those of fields refer to it where these have a `cfg`.
pub(crate) fn where_stateless(
    runtime: &Runtime,
    name: &Ident,
    generics: &Generics,
    shape: &Shape<'_>,
) -> Generics {
    if shape.fields().iter().all(|field| field.cfg.is_empty()) || generics.params.is_empty() {
        return bounds(runtime, name, generics, shape).generics;
    }
    let mut bounded = generics.clone();
    let (_, used, _) = generics.split_for_impl();
    bounded.make_where_clause().predicates.push(parse_quote!(#name #used: #runtime::Stateless));
    bounded
}

fn of_itself() -> Ident {
    Ident::new("Self", Span::call_site())
}

impl Bounds {
    fn push(&mut self, predicate: WherePredicate) {
        self.generics.make_where_clause().predicates.push(predicate);
    }

    /// A bound for the type of a field. One that the compiler may leave out has it by another name, which then stands for a type that is always
    /// Stateless: a bound cannot have a `cfg`.
    fn require(
        &mut self,
        runtime: &Runtime,
        name: &Ident,
        generics: &Generics,
        (index, field): (usize, &StateField<'_>),
    ) {
        let (ty, cfg) = (field.ty, &field.cfg);
        if cfg.is_empty() {
            return self.push(parse_quote!(#ty: #runtime::Stateless));
        }
        let alias = format_ident!("__Field{index}");
        let (declared, used, _) = generics.split_for_impl();
        let ty = without_self(ty, &quote!(#name #used));
        let conditions = cfg.iter().map(|attribute| {
            let condition = attribute.meta.require_list().map(|list| list.tokens.clone());
            condition.unwrap_or_default()
        });
        self.items.extend(quote! {
            #(#cfg)*
            #[allow(type_alias_bounds)]
            type #alias #declared = #ty;
            #[cfg(not(all(#(#conditions),*)))]
            #[allow(type_alias_bounds)]
            type #alias #declared = #runtime::Absent<#name #used>;
        });
        self.push(parse_quote!(#alias #used: #runtime::Stateless));
    }

    /// Bounds for the parameters in the type of a field that mentions the item: a bound for that type would have to be known to show itself.
    fn require_parameters(&mut self, runtime: &Runtime, generics: &Generics, field: &StateField<'_>) {
        for parameter in &generics.params {
            let GenericParam::Type(parameter) = parameter else { continue };
            let ident = &parameter.ident;
            if mentions(field.ty, &[ident, &of_itself()]) {
                self.push(parse_quote!(#ident: #runtime::Stateless));
            }
        }
    }

    /// Such a field is Stateless if the parameters are.
    fn assert_recursive(&mut self, runtime: &Runtime, name: &Ident, fields: &[&StateField<'_>]) {
        if fields.is_empty() {
            return;
        }
        let (declared, used, conditions) = self.generics.split_for_impl();
        let own = quote!(#name #used);
        let assertions = fields.iter().map(|field| {
            let (cfg, ty) = (&field.cfg, without_self(field.ty, &own));
            quote!(#(#cfg)* #runtime::assert_stateless::<#ty>();)
        });
        let assertions: TokenStream = assertions.collect();
        let items = quote! {
            #[allow(dead_code, unused_lifetimes)]
            fn __assert_recursive #declared () #conditions {
                #assertions
            }
        };
        self.items.extend(items);
    }
}
