//! The names of an enum's variants, for the numbers that its column has.

use tcx_store::{Spec, Variant};

use crate::text::values::Number;

/// The variants of an output that is an enum.
#[derive(Clone, Debug)]
pub(crate) struct Variants(Vec<Variant>);

impl Variants {
    /// `None` for an output that is no enum, or one whose names are unknown.
    pub(crate) fn of(spec: &Spec, leaf: usize) -> Option<Self> {
        spec.variants(leaf).map(Self)
    }

    /// The names, in the order of their declaration.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|own| own.name.as_str())
    }

    /// The names and the numbers, in the order of their declaration.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (&str, Number)> {
        self.0.iter().map(|own| (own.name.as_str(), Number::Int(own.number.into())))
    }

    /// The place in the declaration of the variant with this number.
    pub(crate) fn position(&self, number: Number) -> Option<usize> {
        let Number::Int(number) = number else { return None };
        self.0.iter().position(|own| i64::from(own.number) == number)
    }

    /// The name of a number.
    pub(crate) fn name(&self, number: Number) -> Option<&str> {
        self.position(number).map(|at| self.0[at].name.as_str())
    }

    /// The number of a name.
    pub(crate) fn number(&self, name: &str) -> Option<i32> {
        self.0.iter().find(|own| own.name == name).map(|own| own.number)
    }

    /// The names and their numbers, as a JSON object.
    pub(crate) fn json(&self) -> serde_json::Map<String, serde_json::Value> {
        self.0.iter().map(|own| (own.name.clone(), own.number.into())).collect()
    }
}
