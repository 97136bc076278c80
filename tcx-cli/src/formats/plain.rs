//! The values of a row as text: in JSON, and in the fields of CSV.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::json;
use tcx_store::{LeafKind, Row};

use crate::failure::{Failure, Result};
use crate::formats::dictionary::{no_variant, number};
use crate::formats::selection::{Chosen, Selection};
use crate::text::ids;
use crate::text::values::{Number, numbers, shape_of};

/// A value of a row.
pub(crate) enum Plain {
    Absent,
    /// Text, the name of a variant, or bytes in hex.
    Text(String),
    Number(Number),
    /// The elements in row-major order, and the shape.
    Tensor(Vec<Number>, Vec<usize>),
}

impl Plain {
    /// The value of the output at this position of the selection.
    ///
    /// # Errors
    ///
    /// The number of an enum has no name.
    pub(crate) fn of(selection: &Selection, position: usize, row: &Row<'_>) -> Result<Self> {
        let Chosen { leaf, variants } = &selection.outputs[position];
        let Some(bytes) = row.leaf(position) else { return Ok(Self::Absent) };
        if let Some(variants) = variants {
            let number = number(leaf, bytes);
            let name = number.and_then(|number| variants.name(number));
            return name.map(|name| Self::Text(name.to_owned())).ok_or_else(|| no_variant(leaf, number));
        }
        Ok(match &leaf.kind {
            LeafKind::Dense { dtype, shape } if shape.is_empty() => {
                numbers(*dtype, bytes).first().map_or(Self::Absent, |number| Self::Number(*number))
            }
            LeafKind::Dense { dtype, shape } => Self::Tensor(numbers(*dtype, bytes), shape.clone()),
            LeafKind::Ragged { dtype, shape } => {
                // The sizes of a tensor with several dynamic dimensions are the next output.
                let next = position + 1;
                let sizes = if next < selection.outputs.len() { row.leaf(next) } else { None };
                let shape = shape_of(shape, bytes.len() / dtype.size(), sizes.unwrap_or_default());
                Self::Tensor(numbers(*dtype, bytes), shape)
            }
            LeafKind::Text => Self::Text(String::from_utf8_lossy(bytes).into_owned()),
            _ => Self::Text(ids::hex(bytes)),
        })
    }

    /// The field of a CSV file: numbers and text as they are, tensors as JSON.
    pub(crate) fn field(self) -> Result<String> {
        Ok(match self {
            Self::Absent => String::new(),
            Self::Text(text) => text,
            Self::Number(number) if !number.as_f64().is_finite() => number.to_string(),
            value => serde_json::to_string(&value).map_err(|error| unwritable(&error))?,
        })
    }
}

/// JSON cannot be written.
pub(crate) fn unwritable(error: &serde_json::Error) -> Failure {
    Failure::from(std::io::Error::other(error.to_string()))
}

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => to.serialize_none(),
            Self::Text(text) => to.serialize_str(text),
            Self::Number(number) => number.serialize(to),
            Self::Tensor(elements, shape) => Nested { elements, shape }.serialize(to),
        }
    }
}

/// Lists of lists, one level for each dimension.
struct Nested<'a> {
    elements: &'a [Number],
    shape: &'a [usize],
}

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Some((len, inner)) = self.shape.split_first() else {
            return self.elements.first().serialize(to);
        };
        let width = inner.iter().product::<usize>();
        let mut list = to.serialize_seq(Some(*len))?;
        for at in 0..*len {
            let elements = self.elements.get(at * width..(at + 1) * width).unwrap_or_default();
            list.serialize_element(&Nested { elements, shape: inner })?;
        }
        list.end()
    }
}

/// The id: text as it is, bytes in hex.
pub(crate) fn id(selection: &Selection, row: &Row<'_>) -> serde_json::Value {
    match selection.key_type {
        tcx_store::KeyType::Int => json!(ids::integer(row.key)),
        key_type => json!(ids::show(key_type, row.key)),
    }
}
