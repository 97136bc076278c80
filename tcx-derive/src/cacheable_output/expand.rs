//! The generated code: one call per field into `tcx::__private`, and one assertion per field, which is where
//! the compiler reports a type that cannot be cached.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Generics, parse_quote};

use super::model::{Output, OutputField, Tensor};
use super::tensor::{Dim, TensorAttribute};
use crate::types::mentions_parameter;

pub(crate) fn expand(output: &Output<'_>) -> TokenStream {
    let (runtime, name) = (&output.runtime, &output.original.ident);
    let assertions = output.fields.iter().map(|field| assertion(output, field));
    let generics = bounded(output);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let columns = output.fields.iter().map(|field| {
        let (name, stored) = (&field.name, stored(output, field));
        quote!(#runtime::Field { name: #name, column: #stored::COLUMN })
    });
    let writes = output.fields.iter().map(|field| {
        let (name, member, stored) = (&field.name, &field.member, stored(output, field));
        quote!(#runtime::ColumnWriter::field(__writer, #name, |__writer| #stored::write(&self.#member, __writer))?;)
    });
    let reads = output.fields.iter().map(|field| {
        let (member, stored) = (&field.member, stored(output, field));
        quote!(#member: #stored::read(__reader)?)
    });
    quote! {
        const _: () = {
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
            }
        };
    }
}

/// After a mistake: an impl all the same, so that using the struct is not a second error; and the assertions
/// of the other fields, so that their mistakes are seen at once.
pub(crate) fn stub(output: &Output<'_>) -> TokenStream {
    let (runtime, name) = (&output.runtime, &output.original.ident);
    let judged = output.fields.iter().filter(|field| matches!(field.tensor, Tensor::No));
    let assertions =
        judged.filter(|field| !super::check::is_refused(field)).map(|field| assertion(output, field));
    let (impl_generics, ty_generics, where_clause) = output.original.generics.split_for_impl();
    quote! {
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

/// The type as the trait that stores it: `<Vec<String> as CacheableOutput>`.
fn stored(output: &Output<'_>, field: &OutputField<'_>) -> TokenStream {
    let (runtime, ty) = (&output.runtime, field.ty());
    match &field.tensor {
        Tensor::Yes(attribute) => {
            let dense = dense(output, attribute);
            quote!(<#dense as #runtime::TensorColumn<#ty>>)
        }
        Tensor::No | Tensor::Wrong => quote!(<#ty as #runtime::CacheableOutput>),
    }
}

/// `Dense<f32, D1<{2048}>>`.
fn dense(output: &Output<'_>, attribute: &TensorAttribute) -> TokenStream {
    let (runtime, dtype) = (&output.runtime, &attribute.dtype);
    let shape = shape(output, attribute);
    quote!(#runtime::Dense<#runtime::#dtype, #shape>)
}

fn shape(output: &Output<'_>, attribute: &TensorAttribute) -> TokenStream {
    let runtime = &output.runtime;
    let name = quote::format_ident!("D{}", attribute.dims.len());
    let dims = attribute.dims.iter().filter_map(|dim| match dim {
        Dim::Literal(expr) | Dim::Constant(expr) => Some(quote!({ #expr })),
        Dim::Varying(_) => None,
    });
    quote!(#runtime::#name<#(#dims),*>)
}

/// A statement that does not compile if the field cannot be stored. It carries the tokens of the field's type,
/// so that the error stands there. A type with parameters is judged where the struct is used.
fn assertion(output: &Output<'_>, field: &OutputField<'_>) -> TokenStream {
    let (runtime, ty, generics) = (&output.runtime, field.ty(), &output.original.generics);
    match &field.tensor {
        Tensor::Yes(attribute) => {
            let (dense, shape) = (dense(output, attribute), shape(output, attribute));
            if mentions_parameter(ty, generics) || mentions_parameter(&dense, generics) {
                return TokenStream::new();
            }
            let constant = attribute.dims.iter().find_map(|dim| match dim {
                Dim::Constant(expr) => Some(expr.span()),
                _ => None,
            });
            let shape =
                constant.map(|span| quote_spanned!(span=> const _: () = #runtime::assert_shape::<#shape>();));
            quote!(const _: () = #runtime::assert_column::<#ty, #dense>(); #shape)
        }
        Tensor::No | Tensor::Wrong if mentions_parameter(ty, generics) => TokenStream::new(),
        Tensor::No | Tensor::Wrong => quote!(const _: () = #runtime::assert_output::<#ty>();),
    }
}

/// The struct's generics, and for each field that it can be stored. The unused lifetime keeps the compiler from
/// judging that bound here, where it would report what the assertion reports.
fn bounded(output: &Output<'_>) -> Generics {
    let runtime = &output.runtime;
    let mut generics = output.original.generics.clone();
    let bounds = &mut generics.make_where_clause().predicates;
    for field in &output.fields {
        let ty = field.ty();
        bounds.push(match &field.tensor {
            Tensor::Yes(attribute) => {
                let dense = dense(output, attribute);
                parse_quote!(for<'__tcx> #dense: #runtime::TensorColumn<#ty>)
            }
            Tensor::No | Tensor::Wrong => parse_quote!(for<'__tcx> #ty: #runtime::CacheableOutput),
        });
    }
    generics
}
