//! The generated code, as it is read in review: few and small cases, compared with files.
//!
//! `TCX_BLESS=1 cargo test -p tcx-derive` writes the files again; read them.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse_quote;

fn snapshot(name: &str, code: TokenStream) {
    let file: syn::File = syn::parse2(code).expect("generated code parses");
    let code = prettyplease::unparse(&file);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshots").join(name).with_extension("txt");
    if std::env::var_os("TCX_BLESS").is_some() {
        std::fs::write(&path, &code).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(code == expected, "{} differs; generated:\n{code}", path.display());
}

#[test]
fn an_output() {
    snapshot(
        "output",
        crate::cacheable_output::derive(&parse_quote! {
            struct Features<const N: usize> {
                #[tensor(f32, [N, HEADS * 2])]
                maps: Tensor,
                caption: Vec<String>,
            }
        }),
    );
}

#[test]
fn an_output_that_differs_from_sample_to_sample() {
    snapshot(
        "output_that_differs",
        crate::cacheable_output::derive(&parse_quote! {
            struct Features {
                #[tensor(f32, [_, 768], store = bf16)]
                tokens: Ragged,
                #[tensor(i64, [4])]
                face: Vec<Option<Tensor>>,
            }
        }),
    );
}

#[test]
fn an_output_with_a_skipped_field() {
    snapshot(
        "output_with_a_skipped_field",
        crate::cacheable_output::derive(&parse_quote! {
            struct Features<T: CacheableOutput> {
                inner: T,
                #[tcx(skip)]
                attention: Option<Tensor>,
            }
        }),
    );
}

#[test]
fn an_output_enum() {
    snapshot(
        "output_enum",
        crate::cacheable_output::derive(&parse_quote! {
            enum Label {
                Cat,
                Dog = 7,
            }
        }),
    );
}

#[test]
fn an_output_with_a_mistake() {
    snapshot(
        "output_with_a_mistake",
        crate::cacheable_output::derive(&parse_quote! {
            struct Features {
                pooled: Tensor,
                score: f32,
            }
        }),
    );
}

#[test]
fn a_module() {
    let arguments = quote!(id = "encoder_v1", key = i64, crate = feature_cache);
    let item = quote! {
        pub struct Encoder<'a, B: Backbone> {
            backbone: B,
            names: &'a [String],
            #[tcx(not_identity)]
            verbose: bool,
        }
    };
    snapshot("module", crate::cached_module::expand(arguments, item));
}

#[test]
fn a_field_of_a_tuple_struct_cannot_be_left_out() {
    let item = quote! {
        struct Encoder(#[cfg(unix)] i64, bool);
    };
    let code = crate::cached_module::expand(quote!(id = "encoder_v1"), item).to_string();
    assert!(code.contains("name the fields of the struct"), "{code}");
}

#[test]
fn a_module_with_its_output() {
    let arguments = quote!(id = "clip_v1", output(pooled: tensor(f32, [512]), pair: (Vec<String>, Vec<f32>)));
    let item = quote! {
        pub(crate) struct Clip {
            size: i64,
        }
    };
    snapshot("module_with_output", crate::cached_module::expand(arguments, item));
}

#[test]
fn a_stateless_enum() {
    snapshot(
        "stateless_enum",
        crate::stateless::derive(&parse_quote! {
            enum Mode {
                Plain,
                Scaled { by: f64, #[tcx(assume_stateless)] calls: AtomicU64 },
            }
        }),
    );
}
