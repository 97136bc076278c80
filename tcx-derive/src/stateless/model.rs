//! The fields of a struct or of an enum's variants, and what their `#[tcx(..)]` says.

use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, Field, Fields, Ident, Index, Member, Meta, Token, Type};

use crate::errors::Errors;
use crate::options::{similar, tcx_options};

/// A struct's fields, or each variant's.
pub(crate) enum Shape<'a> {
    Struct(Vec<StateField<'a>>),
    Enum(Vec<(&'a Ident, Vec<StateField<'a>>)>),
}

pub(crate) struct StateField<'a> {
    pub(crate) member: Member,
    /// The name of its entry.
    pub(crate) name: String,
    pub(crate) ty: &'a Type,
    /// `#[tcx(not_identity)]`: must be Stateless, and cannot change an output.
    pub(crate) not_identity: bool,
    /// `#[tcx(assume_stateless)]`: need not be Stateless.
    pub(crate) assume_stateless: bool,
    /// Its `#[cfg(..)]`, which the code of the field has too: an attribute macro gets fields that the compiler may leave out. A derive
    /// gets none of these.
    pub(crate) cfg: Vec<&'a Attribute>,
}

const OPTIONS: [&str; 2] = ["not_identity", "assume_stateless"];

/// An attribute macro gets `cfg_attr` as it is written. A derive gets what it stands for.
const HIDDEN: &str = "`#[cached_module]` is expanded before `cfg_attr`, and would not see this option: write the field twice, under \
                      `#[cfg(..)]` with `#[tcx(..)]`, and under `#[cfg(not(..))]` without it";

/// Whether an attribute is a `cfg_attr` that stands for `#[tcx(..)]`.
pub(crate) fn has_hidden_option(attribute: &Attribute) -> bool {
    let inside = |attribute: &Attribute| {
        attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    let is_option = |meta: &Meta| meta.path().is_ident("tcx");
    attribute.path().is_ident("cfg_attr") && inside(attribute).iter().skip(1).any(is_option)
}

impl<'a> Shape<'a> {
    pub(crate) fn parse(data: &'a Data, errors: &mut Errors) -> Self {
        match data {
            Data::Struct(data) => Self::of(&data.fields, errors),
            Data::Enum(data) => Self::Enum(
                data.variants
                    .iter()
                    .map(|variant| (&variant.ident, fields(&variant.fields, errors)))
                    .collect(),
            ),
            Data::Union(data) => {
                errors.at(
                    data.union_token,
                    "a union cannot be `Stateless`: its active field is unknown; use an enum",
                );
                Self::Struct(Vec::new())
            }
        }
    }

    /// A struct's.
    pub(crate) fn of(struct_fields: &'a Fields, errors: &mut Errors) -> Self {
        Self::Struct(fields(struct_fields, errors))
    }

    /// The fields of all variants.
    pub(crate) fn fields(&self) -> Vec<&StateField<'a>> {
        match self {
            Self::Struct(fields) => fields.iter().collect(),
            Self::Enum(variants) => variants.iter().flat_map(|(_, fields)| fields).collect(),
        }
    }
}

fn fields<'a>(fields: &'a Fields, errors: &mut Errors) -> Vec<StateField<'a>> {
    fields.iter().enumerate().map(|field| StateField::parse(field, errors)).collect()
}

impl<'a> StateField<'a> {
    fn parse((index, field): (usize, &'a Field), errors: &mut Errors) -> Self {
        let (member, name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.unraw().to_string()),
            None => (Member::Unnamed(Index::from(index)), index.to_string()),
        };
        let cfg: Vec<_> = field.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
        if let (Some(cfg), Member::Unnamed(_)) = (cfg.first(), &member) {
            errors.at(cfg, "a field with `cfg` has no fixed number, which is its name in the identity: name the fields of the struct");
        }
        for attribute in field.attrs.iter().filter(|attribute| has_hidden_option(attribute)) {
            errors.at(attribute, HIDDEN);
        }
        let mut parsed =
            Self { member, name, ty: &field.ty, not_identity: false, assume_stateless: false, cfg };
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tcx")) {
            for option in tcx_options(attribute, errors) {
                let name = option.name.to_string();
                match name.as_str() {
                    _ if !option.value.is_empty() => {
                        errors.at(&option.value, format!("`{name}` takes no value"));
                    }
                    "not_identity" => parsed.not_identity = true,
                    "assume_stateless" => parsed.assume_stateless = true,
                    _ => {
                        let hint = match similar(&name, &OPTIONS) {
                            Some(known) => format!(" (did you mean `{known}`?)"),
                            None => String::new(),
                        };
                        let expected = "expected `not_identity` or `assume_stateless`";
                        errors.at(&option.name, format!("unknown option `{name}`{hint}; {expected}"));
                    }
                }
            }
        }
        parsed
    }
}
