//! The struct as the derive understands it.

use syn::ext::IdentExt as _;
use syn::{Data, DeriveInput, Field, Ident, Index, Member, Type};

use super::form::Form;
use super::tensor::TensorAttribute;
use crate::errors::Errors;
use crate::options::{container_options, similar, tcx_options};
use crate::runtime::Runtime;

/// A struct whose fields become columns.
pub(crate) struct Output<'a> {
    pub(crate) original: &'a DeriveInput,
    pub(crate) form: Form,
    pub(crate) runtime: Runtime,
    pub(crate) fields: Vec<OutputField<'a>>,
}

pub(crate) struct OutputField<'a> {
    pub(crate) original: &'a Field,
    pub(crate) member: Member,
    /// The name of its column.
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
    /// `#[tcx(skip)]`: no column, the default when read.
    pub(crate) skipped: bool,
}

/// What `#[tensor(..)]` says about a field.
pub(crate) enum Tensor {
    /// Not a tensor.
    No,
    /// There is one, with mistakes that have been reported, or are by the compiler.
    Wrong,
    Yes(TensorAttribute),
}

impl<'a> Output<'a> {
    pub(crate) fn parse(
        original: &'a DeriveInput,
        form: Form,
        mut runtime: Runtime,
        errors: &mut Errors,
    ) -> Self {
        container_options(&original.attrs, &mut runtime, errors);
        let fields = match &original.data {
            Data::Struct(data) => {
                data.fields.iter().enumerate().map(|field| OutputField::parse(field, form, errors)).collect()
            }
            Data::Enum(_) | Data::Union(_) => Vec::new(),
        };
        Self { original, form, runtime, fields }
    }
}

impl Output<'_> {
    /// Whether every field's declaration is understood.
    pub(crate) fn is_clear(&self) -> bool {
        !self.fields.iter().any(|field| matches!(field.tensor, Tensor::Wrong))
    }
}

impl<'a> OutputField<'a> {
    fn parse((index, original): (usize, &'a Field), form: Form, errors: &mut Errors) -> Self {
        let (member, name) = match &original.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (Member::Unnamed(Index::from(index)), index.to_string()),
        };
        let (mut tensor, mut skip) = (Tensor::No, None);
        for attribute in &original.attrs {
            if attribute.path().is_ident("tensor") {
                let again = !matches!(tensor, Tensor::No);
                if again {
                    errors.at(attribute, format!("field `{name}` has two `#[tensor(..)]`: keep one"));
                }
                let parsed = errors.ok(TensorAttribute::parse(attribute, form));
                tensor = if again { Tensor::Wrong } else { parsed.map_or(Tensor::Wrong, Tensor::Yes) };
            } else if attribute.path().is_ident("tcx") {
                skip = field_options(attribute, errors).or(skip);
            } else if attribute
                .path()
                .get_ident()
                .is_some_and(|name| similar(&name.to_string(), &["tensor"]).is_some())
            {
                // Misspelt. The compiler says so, and what was meant.
                tensor = Tensor::Wrong;
            }
        }
        if let (Some(skip), Tensor::Yes(_)) = (&skip, &tensor) {
            let message = format!(
                "field `{name}` has both `skip` and a column: remove `skip` to cache it, or `#[tensor(..)]` to leave it out"
            );
            errors.at(skip, message);
        }
        Self { original, member, name, tensor, skipped: skip.is_some() }
    }

    pub(crate) fn ty(&self) -> &'a Type {
        &self.original.ty
    }
}

/// The options of an output's field: the word `skip`, if it is there. The error for those of a module's field says
/// where they belong.
fn field_options(attribute: &syn::Attribute, errors: &mut Errors) -> Option<Ident> {
    let mut skip = None;
    for option in tcx_options(attribute, errors) {
        let name = option.name.to_string();
        let known = similar(&name, &["not_identity", "assume_stateless", "skip"]);
        match known {
            Some("skip") if name != "skip" => {
                errors.at(&option.name, format!("unknown option `{name}` (did you mean `skip`?)"));
            }
            Some("skip") if !option.value.is_empty() => errors.at(&option.value, "`skip` takes no value"),
            Some("skip") => {}
            Some(known) => errors.at(
                &option.name,
                format!("`{known}` is for the fields of a module, not for those of its output"),
            ),
            None => errors.at(&option.name, format!("unknown option `{name}`; expected `skip`")),
        }
        if known == Some("skip") {
            skip = Some(option.name);
        }
    }
    skip
}
