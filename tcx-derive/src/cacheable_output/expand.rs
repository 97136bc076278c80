//! The generated code: one call per field into `tcx::__private`, and one assertion per field, which is where
//! the compiler reports a type that cannot be cached.
//!
//! That report is the only one. The impl is there for whichever types the fields have, so that the struct can be used
//! as an output: `OutputPart` and its siblings accept any type, and the assertions accept only types that can be stored.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Generics, Ident, parse_quote};

use super::check::is_refused;
use super::model::{Output, OutputField, Tensor};
use super::tensor::{Dim, TensorAttribute};
use crate::runtime::Runtime;
use crate::types::{mentions_parameter, without_self};

pub(crate) fn expand(output: &Output<'_>) -> TokenStream {
    let (runtime, name) = (&output.runtime, &output.original.ident);
    let assertions = (0..output.fields.len()).map(|index| assertion(output, index));
    let indices = || (0..output.fields.len()).filter(|&index| !output.fields[index].skipped);
    let generics = bounded(output);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let columns = indices().map(|index| {
        let (name, stored) = (&output.fields[index].name, stored(output, index));
        quote!(#runtime::Field { name: #name, column: #stored::COLUMN })
    });
    let writes = indices().map(|index| {
        let OutputField { name, member, .. } = &output.fields[index];
        let stored = stored(output, index);
        quote!(#runtime::ColumnWriter::field(__writer, #name, |__writer| #stored::write(&self.#member, __writer))?;)
    });
    let reads = (0..output.fields.len()).map(|index| {
        let (member, stored) = (&output.fields[index].member, stored(output, index));
        if output.fields[index].skipped {
            return quote!(#member: #stored::value());
        }
        quote!(#member: #stored::read(__reader)?)
    });
    let described: Vec<_> = indices()
        .filter(|&index| match &output.fields[index].tensor {
            Tensor::Yes(attribute) => attribute.store.is_some(),
            Tensor::No | Tensor::Wrong => true,
        })
        .map(|index| {
            let (name, stored) = (&output.fields[index].name, stored(output, index));
            quote!(#runtime::Identity::part(__identity, #name, #stored::describe);)
        })
        .collect();
    let describe = (!described.is_empty()).then(|| {
        quote! {
            fn describe(__identity: &mut #runtime::Identity) {
                #(#described)*
            }
        }
    });
    // The import is used only where a type cannot be stored.
    quote! {
        #[allow(deprecated)]
        const _: () = {
            #[allow(unused_imports)]
            use #runtime::AnyPart as _;
            #(#assertions)*

            #[doc(hidden)]
            #[automatically_derived]
            impl #impl_generics #runtime::CacheableOutput for #name #ty_generics #where_clause {
                const COLUMN: #runtime::ColumnType = #runtime::ColumnType::Struct(&[#(#columns),*]);

                fn write(&self, __writer: &mut #runtime::ColumnWriter) -> #runtime::Result<()> {
                    #(#writes)*
                    #runtime::Result::Ok(())
                }

                fn read(__reader: &mut #runtime::ColumnReader<'_>) -> #runtime::Result<Self> {
                    #runtime::Result::Ok(Self { #(#reads),* })
                }

                #describe
            }
        };
    }
}

/// After a mistake: an impl all the same, so that using the struct is not a second error; and the assertions
/// of the other fields, so that their mistakes are seen at once.
pub(crate) fn stub(output: &Output<'_>) -> TokenStream {
    let (runtime, name) = (&output.runtime, &output.original.ident);
    let is_judged =
        |field: &OutputField<'_>| matches!(field.tensor, Tensor::No) && (field.skipped || !is_refused(field));
    let judged = (0..output.fields.len()).filter(|&index| is_judged(&output.fields[index]));
    let assertions = judged.map(|index| assertion(output, index));
    let (impl_generics, ty_generics, where_clause) = output.original.generics.split_for_impl();
    quote! {
        #[allow(deprecated)]
        const _: () = {
            #(#assertions)*

            #[doc(hidden)]
            #[automatically_derived]
            impl #impl_generics #runtime::CacheableOutput for #name #ty_generics #where_clause {
                const COLUMN: #runtime::ColumnType = #runtime::ColumnType::Struct(&[]);

                fn write(&self, _: &mut #runtime::ColumnWriter) -> #runtime::Result<()> {
                    #runtime::never_compiled()
                }

                fn read(_: &mut #runtime::ColumnReader<'_>) -> #runtime::Result<Self> {
                    #runtime::never_compiled()
                }
            }
        };
    }
}

/// How the field is stored: `<Vec<T> as CacheableOutput>` where a bound of the impl says that it can be, else
/// `OutputPart::<Vec<String>>`.
fn stored(output: &Output<'_>, index: usize) -> TokenStream {
    let (runtime, field) = (&output.runtime, &output.fields[index]);
    let (ty, is_open) = (field.ty(), is_open(output, index));
    match &field.tensor {
        _ if field.skipped && is_open => quote!(<#ty as #runtime::Skipped>),
        _ if field.skipped => quote!(#runtime::SkippedPart::<#ty>),
        Tensor::Yes(attribute) => {
            let column = column(output, index, attribute);
            if is_open {
                quote!(<#ty as #runtime::TensorField<#column>>)
            } else {
                quote!(#runtime::TensorPart::<#ty, #column>)
            }
        }
        Tensor::No | Tensor::Wrong if is_open => quote!(<#ty as #runtime::CacheableOutput>),
        Tensor::No | Tensor::Wrong => quote!(#runtime::OutputPart::<#ty>),
    }
}

/// Whether the field uses a parameter of the struct: then it is a bound of the impl, judged where the struct is used.
/// Every other field has an assertion.
fn is_open(output: &Output<'_>, index: usize) -> bool {
    let (field, generics) = (&output.fields[index], &output.original.generics);
    let uses_parameter = |attribute| mentions_parameter(&marker(output, attribute), generics);
    match &field.tensor {
        Tensor::Yes(attribute) if !field.skipped && uses_parameter(attribute) => true,
        _ => mentions_parameter(field.ty(), generics),
    }
}

/// How a tensor is stored: the name of an alias, so that a mistake in a dimension is found once. An alias cannot
/// use the struct's parameters.
fn column(output: &Output<'_>, index: usize, attribute: &TensorAttribute) -> TokenStream {
    let marker = marker(output, attribute);
    if mentions_parameter(&marker, &output.original.generics) {
        return marker;
    }
    format_ident!("__TcxColumn{index}").into_token_stream()
}

/// `Dense<f32, D1<{ 2048 }>>`, `Varying<f32, D2<{ DYNAMIC_DIM }, { 768 }>, f16>`.
fn marker(output: &Output<'_>, attribute: &TensorAttribute) -> TokenStream {
    let (runtime, dtype) = (&output.runtime, &attribute.dtype);
    let shape = format_ident!("D{}", attribute.dims.len());
    let dims = attribute.dims.iter().map(|dim| match dim {
        Dim::Literal(expr) | Dim::Constant(expr) => quote!({ #expr }),
        Dim::Varying(_) => quote!({ #runtime::DYNAMIC_DIM }),
    });
    let marker = format_ident!("{}", if attribute.varying().is_some() { "Varying" } else { "Dense" });
    let store = attribute.store.iter();
    quote!(#runtime::#marker<#runtime::#dtype, #runtime::#shape<#(#dims),*> #(, #runtime::#store)*>)
}

/// Statements that do not compile if the field cannot be stored. They carry the tokens of the field's type, so
/// that the error is reported there.
fn assertion(output: &Output<'_>, index: usize) -> TokenStream {
    let (runtime, field) = (&output.runtime, &output.fields[index]);
    if is_open(output, index) {
        return TokenStream::new();
    }
    // They are outside of the impl. What is not open names no parameter, so the struct has none if it is `Self` here.
    let own = output.original.ident.to_token_stream();
    let ty = &without_self(field.ty(), &own);
    if field.skipped {
        let assertion = over_type(runtime, "assert_skipped", ty, None);
        return quote!(const _: () = #assertion;);
    }
    match &field.tensor {
        Tensor::Yes(attribute) => {
            let marker = without_self(&marker(output, attribute), &own);
            let column = column(output, index, attribute);
            let constant = attribute.dims.iter().find_map(|dim| match dim {
                Dim::Constant(expr) => Some(over(quote!(#runtime::assert_column_shape::<#column>()), expr)),
                _ => None,
            });
            let constant = constant.into_iter();
            let assertion = over_type(runtime, "assert_column", ty, Some(&column));
            quote! {
                type #column = #marker;
                const _: () = #assertion;
                #(const _: () = #constant;)*
            }
        }
        Tensor::No | Tensor::Wrong => {
            let assertion = over_type(runtime, "assert_output", ty, None);
            quote!(const _: () = #assertion;)
        }
    }
}

/// A call of an assertion with a type, and its column if it has one, at the place of the type; the type keeps its own tokens.
fn over_type(
    runtime: &Runtime,
    assertion: &str,
    ty: &TokenStream,
    column: Option<&TokenStream>,
) -> TokenStream {
    let (start, end) = ends(ty);
    let column = column.into_iter();
    let assertion = Ident::new(assertion, start);
    let (before, after) =
        (quote_spanned!(start=> #runtime::#assertion::<), quote_spanned!(end=> #(, #column)* >()));
    // The path of tcx is the user's own, or has the span of the derive.
    let before = before.into_iter().map(|mut token| {
        token.set_span(start);
        token
    });
    let before: TokenStream = before.collect();
    quote!(#before #ty #after)
}

/// The places of the first and the last token.
fn ends(place: &impl ToTokens) -> (Span, Span) {
    let mut tokens = place.to_token_stream().into_iter();
    let start = tokens.next().map_or_else(Span::call_site, |token| token.span());
    (start, tokens.last().map_or(start, |token| token.span()))
}

/// Tokens with the span of `place`, from its first token to its last.
pub(super) fn over(tokens: TokenStream, place: &impl ToTokens) -> TokenStream {
    let (start, end) = ends(place);
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for token in &mut tokens {
        token.set_span(start);
    }
    if let Some(last) = tokens.last_mut() {
        last.set_span(end);
    }
    tokens.into_iter().collect()
}

/// The struct's generics, and for each field that uses one of them that it can be stored. The unused lifetime keeps the
/// compiler from judging that bound here.
fn bounded(output: &Output<'_>) -> Generics {
    let runtime = &output.runtime;
    let mut generics = output.original.generics.clone();
    let open: Vec<usize> = (0..output.fields.len()).filter(|&index| is_open(output, index)).collect();
    if open.is_empty() {
        return generics;
    }
    let bounds = &mut generics.make_where_clause().predicates;
    for index in open {
        let field = &output.fields[index];
        let ty = field.ty();
        bounds.push(match &field.tensor {
            _ if field.skipped => parse_quote!(for<'__tcx> #ty: #runtime::Skipped),
            Tensor::Yes(attribute) => {
                let column = column(output, index, attribute);
                parse_quote!(for<'__tcx> #ty: #runtime::TensorField<#column>)
            }
            Tensor::No | Tensor::Wrong => parse_quote!(for<'__tcx> #ty: #runtime::CacheableOutput),
        });
    }
    generics
}
