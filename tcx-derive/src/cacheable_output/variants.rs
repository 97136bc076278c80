//! Enums without data, which are stored as a number per sample: parse, check, expand.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt as _;
use syn::{DataEnum, DeriveInput, Fields, Ident};

use super::expand::over;
use crate::errors::Errors;
use crate::options::container_options;
use crate::runtime::Runtime;

pub(crate) fn implement(input: &DeriveInput, data: &DataEnum, mut runtime: Runtime) -> TokenStream {
    let mut errors = Errors::default();
    container_options(&input.attrs, &mut runtime, &mut errors);
    check(input, data, &mut errors);
    let code = if errors.is_empty() { expand(input, data, &runtime) } else { stub(input, &runtime) };
    let mut tokens = errors.into_compile_errors();
    tokens.extend(code);
    tokens
}

fn check(input: &DeriveInput, data: &DataEnum, errors: &mut Errors) {
    if data.variants.is_empty() {
        errors.at(&input.ident, "an enum without variants has no value to cache: give it at least one");
    }
    // One mistake, however many variants make it.
    if let Some(variant) = data.variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        let message = format!(
            "variant `{}` contains data, but an enum is stored as one number per sample\n  help: use a struct for data, \
             with a `Vec<Option<…>>` field for each part that some samples lack",
            variant.ident
        );
        errors.at(&variant.fields, message);
    }
    if !input.generics.params.is_empty() {
        let message = "an enum in an output cannot have generic parameters: remove them";
        errors.at(&input.generics, message);
    }
    for attribute in data.variants.iter().flat_map(|variant| &variant.attrs) {
        if attribute.path().is_ident("tcx") || attribute.path().is_ident("tensor") {
            errors.at(attribute, "a variant takes no options: remove this");
        }
    }
}

fn expand(input: &DeriveInput, data: &DataEnum, runtime: &Runtime) -> TokenStream {
    let name = &input.ident;
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names = variants.iter().map(|variant| variant.unraw().to_string());
    let numbers: Vec<_> = (0..variants.len()).map(|index| format_ident!("__TCX_NUMBER_{index}")).collect();
    let assertions = data.variants.iter().zip(&numbers).map(|(variant, number)| {
        let assertion = match &variant.discriminant {
            Some((_, written)) => over(quote!(#runtime::variants::check_number(#number)), written),
            None => over(quote!(#runtime::variants::check_next(#number)), &variant.ident),
        };
        quote!(const _: () = #assertion;)
    });
    let (sample_value, optional_value) = (sample_value(name, runtime), optional_value(name, runtime));
    quote! {
        #[allow(deprecated)]
        const _: () = {
            #(const #numbers: #runtime::i128 = #name::#variants as #runtime::i128;)*
            #(#assertions)*

            #[doc(hidden)]
            #[automatically_derived]
            impl #runtime::Variants for #name {
                const VARIANTS: &'static [(&'static #runtime::str, #runtime::i128)] = &[#((#names, #numbers)),*];

                fn number(&self) -> #runtime::i128 {
                    match *self {
                        #(Self::#variants => #numbers,)*
                    }
                }

                fn of_number(__number: #runtime::i128) -> #runtime::Option<Self> {
                    match __number {
                        #(#numbers => #runtime::Option::Some(Self::#variants),)*
                        _ => #runtime::Option::None,
                    }
                }
            }

            #sample_value
            #optional_value
            #runtime::single_value! { #name }
        };
    }
}

/// One number per sample.
fn sample_value(name: &Ident, runtime: &Runtime) -> TokenStream {
    quote! {
        #[doc(hidden)]
        #[automatically_derived]
        impl #runtime::SampleValue for #name {
            const COLUMN: #runtime::ColumnType = #runtime::variants::column::<Self>();

            fn write(__rows: &[Self], __writer: &mut #runtime::ColumnWriter) {
                #runtime::variants::write(__rows, __writer);
            }

            fn read(__reader: &mut #runtime::ColumnReader<'_>) -> #runtime::Result<#runtime::Vec<Self>> {
                #runtime::variants::read(__reader)
            }

            fn describe(__identity: &mut #runtime::Identity) {
                #runtime::variants::describe::<Self>(__identity);
            }
        }
    }
}

/// A number for those samples that have one.
fn optional_value(name: &Ident, runtime: &Runtime) -> TokenStream {
    quote! {
        #[doc(hidden)]
        #[automatically_derived]
        impl #runtime::OptionalValue for #name {
            fn column(__rows: &[#runtime::Option<Self>]) -> #runtime::Column {
                #runtime::variants::some(__rows)
            }

            fn read_some(
                __reader: &mut #runtime::ColumnReader<'_>,
            ) -> #runtime::Result<#runtime::Vec<#runtime::Option<Self>>> {
                #runtime::variants::read_some(__reader)
            }
        }
    }
}

/// After a mistake: an impl all the same, so that using the enum is not a second error.
fn stub(input: &DeriveInput, runtime: &Runtime) -> TokenStream {
    let name = &input.ident;
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    quote! {
        #[doc(hidden)]
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #runtime::SampleValue for #name #ty_generics #where_clause {
            const COLUMN: #runtime::ColumnType = #runtime::ColumnType::Struct(&[]);

            fn write(_: &[Self], _: &mut #runtime::ColumnWriter) {
                #runtime::never_compiled()
            }

            fn read(_: &mut #runtime::ColumnReader<'_>) -> #runtime::Result<#runtime::Vec<Self>> {
                #runtime::never_compiled()
            }
        }

        #[doc(hidden)]
        #[automatically_derived]
        #[allow(deprecated)]
        impl #impl_generics #runtime::OptionalValue for #name #ty_generics #where_clause {
            fn column(_: &[#runtime::Option<Self>]) -> #runtime::Column {
                #runtime::never_compiled()
            }

            fn read_some(
                _: &mut #runtime::ColumnReader<'_>,
            ) -> #runtime::Result<#runtime::Vec<#runtime::Option<Self>>> {
                #runtime::never_compiled()
            }
        }
    }
}
