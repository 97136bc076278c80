//! The type of an output, known at compile time: a tree whose leaves become columns.

use std::fmt;

/// The type of one element of a tensor or of a column of numbers.
///
/// The discriminants are part of the format and never change.
///
/// ```
/// use tcx_store::DType;
///
/// assert_eq!((DType::BF16.size(), DType::BF16.name()), (2, "bf16"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 half precision.
    F16 = 1,
    /// bfloat16: the upper half of an `f32`.
    BF16 = 2,
    /// IEEE 754 single precision.
    F32 = 3,
    /// IEEE 754 double precision.
    F64 = 4,
    /// Signed 8 bit.
    I8 = 5,
    /// Signed 16 bit.
    I16 = 6,
    /// Signed 32 bit.
    I32 = 7,
    /// Signed 64 bit.
    I64 = 8,
    /// Unsigned 8 bit.
    U8 = 9,
    /// A truth value, one byte of 0 or 1.
    Bool = 10,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    const ALL: [Self; 10] = [
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::Bool,
    ];

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| *dtype as u8 == code)
    }

    /// The name as it is written in `#[tensor(f32, [2048])]`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A dimension that differs from sample to sample, `_` in `#[tensor(f16, [_, 768])]`.
///
/// ```
/// use tcx_store::{DYNAMIC_DIM, ColumnType, DType};
///
/// let tokens = ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 768] };
/// assert_eq!(tokens.leaves()[0].kind.to_string(), "f16 [_, 768]");
/// ```
pub const DYNAMIC_DIM: usize = usize::MAX;

/// The type of an output or of a part of it. Its leaves, in order, are the columns.
///
/// ```
/// use tcx_store::{ColumnType, DType, Field};
///
/// const POOLED: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2048] };
/// const INNER: ColumnType = ColumnType::Struct(&[Field { name: "pooled", column: POOLED }]);
/// let output = ColumnType::Struct(&[
///     Field { name: "inner", column: INNER },
///     Field { name: "caption", column: ColumnType::Text },
/// ]);
/// let leaves = output.leaves();
/// assert_eq!((leaves[0].name.as_str(), leaves[1].name.as_str()), ("inner.pooled", "caption"));
/// assert_eq!(leaves[0].kind.width(), Some(2048 * DType::F32.size()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnType {
    /// One tensor of this dtype and shape per sample; the empty shape is one number.
    Dense {
        /// The type of an element.
        dtype: DType,
        /// The per-sample shape, without the batch dimension.
        shape: &'static [usize],
    },
    /// One tensor of this dtype per sample, whose shape differs from sample to sample.
    Ragged {
        /// The type of an element.
        dtype: DType,
        /// The per-sample shape, with at least one [`DYNAMIC_DIM`].
        shape: &'static [usize],
    },
    /// One UTF-8 string per sample.
    Text,
    /// One byte string per sample.
    Bytes,
    /// What not every sample has.
    Optional(&'static Self),
    /// Named parts.
    Struct(&'static [Field]),
}

/// A named part of an output.
///
/// ```
/// use tcx_store::{ColumnType, Field};
///
/// let output = ColumnType::Struct(&[Field { name: "caption", column: ColumnType::Text }]);
/// assert_eq!(output.leaves()[0].name, "caption");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name in the struct, or its number in a tuple.
    pub name: &'static str,
    /// Its type.
    pub column: ColumnType,
}

/// One column of a segment: a leaf of the output's type, with its path as name.
///
/// ```
/// let leaf = &tcx_store::ColumnType::Optional(&tcx_store::ColumnType::Text).leaves()[0];
/// assert_eq!((leaf.name.as_str(), leaf.optional), ("value", true));
/// assert_eq!(leaf.described(), "optional String");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The names on the way from the root, joined by dots; `value` for an output that is a leaf itself.
    pub name: String,
    /// What a row of this column is.
    pub kind: LeafKind,
    /// Whether there are samples without a value: their rows have zeros, or no bytes.
    pub optional: bool,
}

impl Leaf {
    /// The type of a row, as messages print it.
    pub fn described(&self) -> String {
        if self.optional { format!("optional {}", self.kind) } else { self.kind.to_string() }
    }
}

/// What a row of a column is.
///
/// ```
/// use tcx_store::{DType, LeafKind};
///
/// let kind = LeafKind::Dense { dtype: DType::F32, shape: vec![77, 768] };
/// assert_eq!((kind.width(), LeafKind::Text.width()), (Some(77 * 768 * 4), None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeafKind {
    /// A tensor of fixed shape; the empty shape is one number.
    Dense {
        /// The type of an element.
        dtype: DType,
        /// The per-sample shape.
        shape: Vec<usize>,
    },
    /// A tensor whose shape differs from row to row.
    Ragged {
        /// The type of an element.
        dtype: DType,
        /// The per-sample shape, with [`DYNAMIC_DIM`] for the dimensions that differ.
        shape: Vec<usize>,
    },
    /// A UTF-8 string.
    Text,
    /// A byte string.
    Bytes,
}

impl LeafKind {
    /// Dimensions of a row; 0 of one number, text or byte string.
    pub(crate) fn dimensions(&self) -> usize {
        match self {
            Self::Dense { shape, .. } | Self::Ragged { shape, .. } => shape.len(),
            Self::Text | Self::Bytes => 0,
        }
    }

    /// Elements of a row, if all rows have the same number.
    pub(crate) fn elements(&self) -> Option<usize> {
        match self {
            Self::Dense { shape, .. } => Some(product(shape)),
            _ => None,
        }
    }

    /// Elements that a row has a multiple of: what the dimensions that are known come to.
    pub(crate) fn unit(&self) -> usize {
        match self {
            Self::Dense { shape, .. } => product(shape),
            Self::Ragged { shape, .. } => {
                product(&shape.iter().copied().filter(|&dim| dim != DYNAMIC_DIM).collect::<Vec<_>>())
            }
            Self::Text | Self::Bytes => 1,
        }
    }

    /// How many dimensions differ from row to row.
    pub(crate) fn varying(&self) -> usize {
        match self {
            Self::Ragged { shape, .. } => varying(shape),
            _ => 0,
        }
    }

    /// The type of an element, if a row is a tensor.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Self::Dense { dtype, .. } | Self::Ragged { dtype, .. } => Some(*dtype),
            Self::Text | Self::Bytes => None,
        }
    }

    /// Bytes of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        self.dtype().map_or(1, DType::size)
    }

    /// Bytes of a row, if all rows have the same.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Dense { dtype, .. } => {
                self.elements().map(|elements| elements.saturating_mul(dtype.size()))
            }
            _ => None,
        }
    }
}

fn product(shape: &[usize]) -> usize {
    shape.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim))
}

/// How many dimensions differ from sample to sample.
const fn varying(shape: &[usize]) -> usize {
    let (mut varying, mut i) = (0, 0);
    while i < shape.len() {
        varying += (shape[i] == DYNAMIC_DIM) as usize;
        i += 1;
    }
    varying
}

impl fmt::Display for LeafKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dense { dtype, shape } | Self::Ragged { dtype, shape } => {
                let dim = |&dim: &usize| if dim == DYNAMIC_DIM { "_".to_owned() } else { dim.to_string() };
                write!(f, "{dtype} [{}]", shape.iter().map(dim).collect::<Vec<_>>().join(", "))
            }
            Self::Text => f.write_str("String"),
            Self::Bytes => f.write_str("bytes"),
        }
    }
}

impl ColumnType {
    /// The number of columns.
    ///
    /// ```
    /// use tcx_store::{ColumnType, DType, Field};
    ///
    /// const FEATURES: ColumnType = ColumnType::Struct(&[
    ///     Field { name: "pooled", column: ColumnType::Dense { dtype: DType::F32, shape: &[2048] } },
    ///     Field { name: "caption", column: ColumnType::Text },
    /// ]);
    /// assert_eq!(FEATURES.width(), 2);
    /// assert_eq!(FEATURES.leaves()[0].name, "pooled");
    /// ```
    pub const fn width(&self) -> usize {
        match self {
            Self::Dense { .. } | Self::Text | Self::Bytes => 1,
            Self::Ragged { shape, .. } => {
                if varying(shape) > 1 {
                    2
                } else {
                    1
                }
            }
            Self::Optional(column) => column.width(),
            Self::Struct(fields) => {
                let (mut sum, mut i) = (0, 0);
                while i < fields.len() {
                    sum += fields[i].column.width();
                    i += 1;
                }
                sum
            }
        }
    }

    /// The columns, in order.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::with_capacity(self.width());
        self.collect(false, &mut String::new(), &mut leaves);
        leaves
    }

    fn collect(&self, optional: bool, path: &mut String, leaves: &mut Vec<Leaf>) {
        let mut sizes = None;
        let kind = match self {
            Self::Dense { dtype, shape } => LeafKind::Dense { dtype: *dtype, shape: shape.to_vec() },
            Self::Ragged { dtype, shape } => {
                sizes = Some(varying(shape)).filter(|&varying| varying > 1);
                LeafKind::Ragged { dtype: *dtype, shape: shape.to_vec() }
            }
            Self::Text => LeafKind::Text,
            Self::Bytes => LeafKind::Bytes,
            Self::Optional(column) => return column.collect(true, path, leaves),
            Self::Struct(fields) => {
                for field in *fields {
                    let parent = path.len();
                    if parent > 0 {
                        path.push('.');
                    }
                    path.push_str(field.name);
                    field.column.collect(optional, path, leaves);
                    path.truncate(parent);
                }
                return;
            }
        };
        let name = if path.is_empty() { "value".to_owned() } else { path.clone() };
        // Elements alone do not tell the shape where several dimensions differ.
        let sizes = sizes.map(|varying| Leaf {
            name: format!("{name}.sizes"),
            kind: LeafKind::Dense { dtype: DType::I64, shape: vec![varying] },
            optional: false,
        });
        leaves.push(Leaf { name, kind, optional });
        leaves.extend(sizes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_of_which_several_dimensions_differ_has_a_column_of_their_sizes() {
        const MAPS: ColumnType =
            ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 3, DYNAMIC_DIM] };
        const TOKENS: ColumnType = ColumnType::Ragged { dtype: DType::F16, shape: &[DYNAMIC_DIM, 768] };
        const OUTPUT: ColumnType = ColumnType::Struct(&[
            Field { name: "maps", column: ColumnType::Optional(&MAPS) },
            Field { name: "tokens", column: TOKENS },
            Field { name: "image", column: ColumnType::Bytes },
        ]);
        let leaves = OUTPUT.leaves();
        let said: Vec<_> = leaves.iter().map(|leaf| format!("{}: {}", leaf.name, leaf.described())).collect();
        let expected =
            ["maps: optional f16 [_, 3, _]", "maps.sizes: i64 [2]", "tokens: f16 [_, 768]", "image: bytes"];
        assert_eq!(said, expected);
        assert_eq!(OUTPUT.width(), leaves.len());
    }
}
