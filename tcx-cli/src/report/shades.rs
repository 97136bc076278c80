//! The values that colour the points of a projection: those of an enum or of a number.

use std::fmt;

use serde::{Serialize, Serializer};
use tcx_store::{DType, LeafKind, Row, Spec};

use crate::text::values::{Number, numbers};
use crate::text::variants::Variants;

/// The value that colours a point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shade {
    /// A variant: its name, and its place among the variants.
    Variant(String, usize),
    Number(Number),
}

impl Serialize for Shade {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Variant(name, _) => to.serialize_str(name),
            Self::Number(number) => number.serialize(to),
        }
    }
}

impl fmt::Display for Shade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variant(name, _) => name.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// The output that colours the points.
pub(crate) struct Shades {
    pub(crate) name: String,
    leaf: usize,
    dtype: DType,
    variants: Option<Variants>,
}

impl Shades {
    /// The output with this name; without a name, the first enum, or the first number of a module without enums. `None` if the
    /// module has no such output.
    pub(crate) fn choose(spec: &Spec, wanted: Option<&str>) -> Option<Self> {
        let of = |(leaf, own): (usize, &tcx_store::Leaf)| match &own.kind {
            LeafKind::Dense { dtype, shape } if shape.is_empty() => {
                let variants = Variants::of(spec, leaf);
                Some(Self { name: own.name.clone(), leaf, dtype: *dtype, variants })
            }
            _ => None,
        };
        let mut found =
            spec.leaves().iter().enumerate().filter_map(of).filter(|own| !own.name.starts_with("__"));
        if let Some(name) = wanted {
            found.find(|own| own.name == name)
        } else {
            let mut found: Vec<Self> = found.collect();
            let first = found.iter().position(|own| own.variants.is_some()).unwrap_or(0);
            (first < found.len()).then(|| found.swap_remove(first))
        }
    }

    /// The value of a row; `None` if it has none.
    pub(crate) fn of(&self, row: &Row<'_>) -> Option<Shade> {
        let number = numbers(self.dtype, row.leaf(self.leaf)?).first().copied()?;
        let Some(variants) = &self.variants else { return Some(Shade::Number(number)) };
        let at = variants.position(number)?;
        Some(Shade::Variant(variants.name(number)?.to_owned(), at))
    }
}
