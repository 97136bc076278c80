//! The type of an output, known at compile time: a tree whose leaves become columns.

use std::fmt;

/// The type of one element of a tensor or of a column of numbers.
///
/// The discriminants are part of the format and never change.
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

/// The type of an output or of a part of it. Its leaves, in order, are the columns.
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
    /// One UTF-8 string per sample.
    Text,
    /// Named parts.
    Struct(&'static [Field]),
}

/// A named part of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name in the struct, or its number in a tuple.
    pub name: &'static str,
    /// Its type.
    pub column: ColumnType,
}

/// One column of a segment: a leaf of the output's type, with its path as name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The names on the way from the root, joined by dots; `value` for an output that is a leaf itself.
    pub name: String,
    /// What a row of this column is.
    pub kind: LeafKind,
}

/// What a row of a column is.
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
    /// A UTF-8 string.
    Text,
}

impl LeafKind {
    /// Elements of a row, if all rows have the same number.
    pub(crate) fn elements(&self) -> Option<usize> {
        match self {
            Self::Dense { shape, .. } => {
                Some(shape.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim)))
            }
            Self::Text => None,
        }
    }

    /// Bytes of a row, if all rows have the same.
    pub fn width(&self) -> Option<usize> {
        match self {
            Self::Dense { dtype, .. } => {
                self.elements().map(|elements| elements.saturating_mul(dtype.size()))
            }
            Self::Text => None,
        }
    }
}

impl fmt::Display for LeafKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dense { dtype, shape } => write!(f, "{dtype} {shape:?}"),
            Self::Text => f.write_str("String"),
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
            Self::Dense { .. } | Self::Text => 1,
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
        self.collect(&mut String::new(), &mut leaves);
        leaves
    }

    fn collect(&self, path: &mut String, leaves: &mut Vec<Leaf>) {
        let kind = match self {
            Self::Dense { dtype, shape } => LeafKind::Dense { dtype: *dtype, shape: shape.to_vec() },
            Self::Text => LeafKind::Text,
            Self::Struct(fields) => {
                for field in *fields {
                    let parent = path.len();
                    if parent > 0 {
                        path.push('.');
                    }
                    path.push_str(field.name);
                    field.column.collect(path, leaves);
                    path.truncate(parent);
                }
                return;
            }
        };
        let name = if path.is_empty() { "value".to_owned() } else { path.clone() };
        leaves.push(Leaf { name, kind });
    }
}
