//! Looking at types as they are written: a macro sees names, never what they stand for.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, GenericArgument, GenericParam, Generics, Ident, PathArguments, PathSegment, Type};

/// The expression without the invisible groups that `macro_rules!` puts around what it was given.
pub(crate) fn peel(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => peel(*group.expr),
        other => other,
    }
}

/// The last segment of a type that is a path.
fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        _ => None,
    }
}

/// Whether the type is written `Tensor`, with or without a path before.
pub(crate) fn is_tensor(ty: &Type) -> bool {
    is_named(ty, "Tensor")
}

/// Whether the type is written `Ragged`.
pub(crate) fn is_ragged(ty: &Type) -> bool {
    is_named(ty, "Ragged")
}

fn is_named(ty: &Type, name: &str) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == name && segment.arguments.is_none())
}

/// What the type is written to hold, if it is written `name<…>`.
pub(crate) fn argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let PathArguments::AngleBracketed(arguments) = &last_segment(ty).filter(|s| s.ident == name)?.arguments
    else {
        return None;
    };
    match arguments.args.first() {
        Some(GenericArgument::Type(ty)) => Some(ty),
        _ => None,
    }
}

/// Whether the type borrows something by its looks.
pub(crate) fn is_reference(ty: &Type) -> bool {
    match ty {
        Type::Group(group) => is_reference(&group.elem),
        Type::Paren(paren) => is_reference(&paren.elem),
        Type::Reference(_) => true,
        _ => false,
    }
}

/// Whether tokens mention a type or constant parameter of the item.
pub(crate) fn mentions_parameter(tokens: &impl ToTokens, generics: &Generics) -> bool {
    let parameters: Vec<&Ident> = generics
        .params
        .iter()
        .filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    // `Self` has the parameters of the type.
    let itself = Ident::new("Self", Span::call_site());
    !parameters.is_empty() && mentions(tokens, &[&parameters[..], &[&itself]].concat())
}

/// Whether tokens mention one of these names.
pub(crate) fn mentions(tokens: &impl ToTokens, names: &[&Ident]) -> bool {
    tokens.to_token_stream().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&&ident),
        TokenTree::Group(group) => mentions(&group.stream(), names),
        _ => false,
    })
}

/// The tokens with the type itself in the place of `Self`, for code outside of an impl.
pub(crate) fn without_self(tokens: &impl ToTokens, own: &TokenStream) -> TokenStream {
    let replace = |token: TokenTree| match token {
        TokenTree::Ident(ident) if ident == "Self" => own.clone(),
        TokenTree::Group(group) => {
            let mut replaced = Group::new(group.delimiter(), without_self(&group.stream(), own));
            replaced.set_span(group.span());
            TokenTree::Group(replaced).into()
        }
        other => other.into(),
    };
    tokens.to_token_stream().into_iter().map(replace).collect()
}
