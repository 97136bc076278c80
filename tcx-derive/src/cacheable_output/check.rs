//! What the derive can judge by the looks of the struct. The rest is judged by the compiler, in the
//! assertions that `expand` emits.

use syn::{Data, GenericParam};

use super::form::Form;
use super::model::{Output, OutputField, Tensor};
use super::tensor::{Dim, TensorAttribute};
use crate::errors::Errors;
use crate::types::{argument, is_reference, is_tensor};

pub(crate) fn check(output: &Output<'_>, errors: &mut Errors) {
    let name = &output.original.ident;
    match &output.original.data {
        // The fields of an inline output are counted where they are parsed.
        Data::Struct(data) if data.fields.is_empty() && matches!(output.form, Form::Derive) => {
            errors.at(name, "an output without fields holds nothing to cache: give it at least one");
        }
        Data::Struct(_) if output.fields.iter().all(|field| field.skipped) && !output.fields.is_empty() => {
            errors.at(name, "an output whose fields are all skipped holds nothing to cache: keep at least one");
        }
        // Enums do not come here.
        Data::Struct(_) | Data::Enum(_) => {}
        Data::Union(data) => errors.at(
            data.union_token,
            "only a struct, or an enum without data, can be a `CacheableOutput`: it becomes the columns of the cache",
        ),
    }
    for parameter in &output.original.generics.params {
        if let GenericParam::Lifetime(lifetime) = parameter {
            errors.at(
                lifetime,
                "an output cannot borrow: it is read back from the cache, and owns what it holds",
            );
        }
    }
    let borrows = output.original.generics.lifetimes().next().is_some();
    for field in output.fields.iter().filter(|field| !field.skipped) {
        check_name(field, errors);
        if is_reference(field.ty()) {
            // One mistake, said once: at the lifetime, if the struct declares it.
            if !borrows {
                errors.at(
                    field.ty(),
                    "an output cannot borrow: it is read back from the cache, and owns what it holds",
                );
            }
            continue;
        }
        match &field.tensor {
            Tensor::No => check_plain(field, output.form, errors),
            Tensor::Yes(attribute) => check_tensor(field, attribute, output.form, errors),
            Tensor::Wrong => {}
        }
    }
}

fn check_name(field: &OutputField<'_>, errors: &mut Errors) {
    if field.name.starts_with("__") {
        let message = format!(
            "field `{}`: names that begin with `__` are reserved for the cache's own columns; rename it to `{}`",
            field.name,
            field.name.trim_start_matches('_')
        );
        errors.at(&field.member, message);
    }
}

/// Whether `check` has something against a field without `#[tensor(..)]`.
pub(crate) fn is_refused(field: &OutputField<'_>) -> bool {
    let ty = field.ty();
    is_reference(ty) || is_tensor(ty) || argument(ty, "Vec").is_some_and(is_tensor)
}

fn check_plain(field: &OutputField<'_>, form: Form, errors: &mut Errors) {
    let name = &field.name;
    if is_tensor(field.ty()) {
        let message = format!(
            "field `{name}`: a `Tensor` has no compile-time dtype or shape\n  help: declare them, without the batch \
             dimension:{}",
            form.field(name, "f32, [2048]")
        );
        errors.at(field.ty(), message);
    } else if argument(field.ty(), "Vec").is_some_and(is_tensor) {
        let mistake = "a `Vec<Tensor>` has no compile-time dtype or shape";
        errors.at(field.ty(), one_tensor(name, form, mistake));
    }
}

fn check_tensor(field: &OutputField<'_>, attribute: &TensorAttribute, form: Form, errors: &mut Errors) {
    let varying = attribute.dims.iter().find_map(|dim| match dim {
        Dim::Varying(span) => Some(*span),
        _ => None,
    });
    let ty = field.ty();
    let per_sample =
        argument(ty, "Vec").is_some_and(|item| is_tensor(argument(item, "Option").unwrap_or(item)));
    if per_sample {
        errors.at(ty, one_tensor(&field.name, form, "tcx cannot store one tensor per sample yet"));
    } else if argument(ty, "Option").is_some_and(is_tensor) {
        let message = format!(
            "field `{}`: a tensor that is there or missing for a whole batch cannot be cached: a later batch may hold \
             samples of both kinds\n  help: fill the rows of samples without one, and say which in a `Vec<bool>` field",
            field.name
        );
        errors.at(ty, message);
    } else if let Some(place) = varying {
        match (form, is_tensor(ty)) {
            (Form::Derive, true) => errors.at(ty, VARYING),
            (Form::Derive, false) => {
                let message = "samples that differ in size need a field of type `Tensor`";
                errors.push(syn::Error::new(place, message));
            }
            (Form::Inline, _) => errors.push(syn::Error::new(place, VARYING)),
        }
    }
}

const VARYING: &str = "`_` in the shape means that samples differ in size, which one `Tensor` cannot hold\n  help: pad \
                       the samples to one size inside `forward`, and keep their lengths in a `Vec<i64>` field";

/// The remedy for samples in tensors of their own.
fn one_tensor(name: &str, form: Form, mistake: &str) -> String {
    format!(
        "field `{name}`: {mistake}\n  help: declare one tensor for the batch, padded to one size if the samples \
         differ:{}",
        form.field(name, "f32, [77, 768]")
    )
}
