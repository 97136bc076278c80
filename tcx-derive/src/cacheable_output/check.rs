//! What the derive can judge by the looks of the struct. The rest is judged by the compiler, in the
//! assertions that `expand` emits.

use syn::{Data, GenericParam, Type};

use super::form::Form;
use super::model::{Output, OutputField, Tensor};
use super::tensor::{Dim, TensorAttribute};
use crate::errors::Errors;
use crate::types::{argument, is_ragged, is_reference, is_tensor};

pub(crate) fn check(output: &Output<'_>, errors: &mut Errors) {
    let name = &output.original.ident;
    match &output.original.data {
        // The fields of an inline output are counted where they are parsed.
        Data::Struct(data) if data.fields.is_empty() && matches!(output.form, Form::Derive) => {
            errors.at(name, "an output without fields stores nothing: add at least one field");
        }
        Data::Struct(_) if output.fields.iter().all(|field| field.skipped) && !output.fields.is_empty() => {
            errors.at(name, "all fields of this output are skipped, so nothing is stored: remove `skip` from at least one");
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
                "an output cannot contain references: a hit creates it from stored bytes, so it must own its values",
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
                    "an output cannot contain references: a hit creates it from stored bytes, so it must own its values",
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
    let is_tensors = |item| is_tensor(present(item));
    is_reference(ty) || is_tensor(ty) || is_ragged(ty) || argument(ty, "Vec").is_some_and(is_tensors)
}

fn check_plain(field: &OutputField<'_>, form: Form, errors: &mut Errors) {
    let (name, ty) = (&field.name, field.ty());
    if is_tensor(ty) {
        let message = format!(
            "field `{name}`: a `Tensor` has no compile-time dtype or shape\n  help: declare them, without the batch \
             dimension:{}",
            form.field(name, "f32, [2048]", "Tensor")
        );
        errors.at(ty, message);
    } else if let Some(item) = argument(ty, "Vec").filter(|item| is_tensor(present(item))) {
        let written = if is_tensor(item) { "Vec<Tensor>" } else { "Vec<Option<Tensor>>" };
        let mut message = format!(
            "field `{name}`: a `{written}` has no compile-time dtype or shape\n  help: declare them for one sample, with \
             `_` for a dimension that differs:{}",
            form.field(name, "f16, [_, 768]", written)
        );
        if matches!(form, Form::Inline) && !is_tensor(item) {
            message = format!(
                "field `{name}`: an output declared in place cannot hold tensors that not every sample has\n  help: \
                 declare a struct with `#[derive(CacheableOutput)]`, and in it:{}",
                Form::Derive.field(name, "f32, [2048]", written)
            );
        }
        errors.at(ty, message);
    } else if is_ragged(ty) {
        let message = format!(
            "field `{name}`: a `Ragged` has no compile-time dtype or shape\n  help: declare them for one sample, with `_` \
             for the dimension that differs:{}",
            form.field(name, "f16, [_, 768]", "Ragged")
        );
        errors.at(ty, message);
    }
}

fn check_tensor(field: &OutputField<'_>, attribute: &TensorAttribute, form: Form, errors: &mut Errors) {
    let (name, ty) = (&field.name, field.ty());
    let varies = attribute.varying().is_some();
    if let Some(item) = argument(ty, "Option").filter(|item| is_tensor(argument(item, "Vec").unwrap_or(item)))
    {
        let (what, it) =
            if is_tensor(item) { ("a tensor that is", "it") } else { ("tensors that are", "them") };
        let message = format!(
            "field `{name}`: {what} present or absent for a whole batch cannot be cached: a later batch may mix \
             samples with and without {it}\n  help: presence is per sample: use a `Vec<Option<Tensor>>`"
        );
        errors.at(ty, message);
    } else if varies && is_tensor(ty) {
        errors.at(
            ty,
            "`_` in the shape means that samples differ in size, which one `Tensor` cannot hold\n  help: use a \
             `Vec<Tensor>`, with one for each sample, or a `tcx::Ragged`, which joins them",
        );
    } else if !varies && argument(ty, "Vec").is_some_and(is_tensor) {
        let message = format!(
            "field `{name}`: samples of one shape are one `Tensor` for the batch\n  help: stack them, or write `_` for \
             the dimension that differs:{}",
            form.field(name, "f32, [77, 768]", "Tensor")
        );
        errors.at(ty, message);
    } else if is_ragged(ty) && !is_first_alone(&attribute.dims) {
        errors.at(
            ty,
            "a `Ragged` joins samples that differ in their first dimension, and in no other: `[_, 768]`\n  help: for \
             other shapes, use a `Vec<Tensor>`",
        );
    }
}

/// Whether the first dimension is the one that varies.
fn is_first_alone(dims: &[Dim]) -> bool {
    dims.iter().enumerate().all(|(at, dim)| matches!(dim, Dim::Varying(_)) == (at == 0)) && !dims.is_empty()
}

/// The type of the value if one is present.
fn present(ty: &Type) -> &Type {
    argument(ty, "Option").unwrap_or(ty)
}
