//! Decodes, summarizes and formats the elements of a row.

use std::fmt;

use half::{bf16, f16};
use serde::{Serialize, Serializer};
use tcx_store::{DType, DYNAMIC_DIM, Leaf, LeafKind};

use crate::text::human;
use crate::text::ids;
use crate::text::variants::Variants;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Single(f32),
    Double(f64),
    Bool(bool),
}

impl Number {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Single(value) => value.fmt(f),
            Self::Double(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Int(value) => to.serialize_i64(value),
            Self::Bool(value) => to.serialize_bool(value),
            // JSON cannot represent these.
            value if !value.as_f64().is_finite() => to.collect_str(&value),
            Self::Single(value) => to.serialize_f32(value),
            Self::Double(value) => to.serialize_f64(value),
        }
    }
}

/// The elements of a row.
pub(crate) fn numbers(dtype: DType, bytes: &[u8]) -> Vec<Number> {
    let of = |bytes: &[u8]| decode(dtype, bytes);
    bytes.chunks_exact(dtype.size()).filter_map(of).collect()
}

fn decode(dtype: DType, bytes: &[u8]) -> Option<Number> {
    Some(match dtype {
        DType::F16 => Number::Single(f16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        DType::BF16 => Number::Single(bf16::from_le_bytes(bytes.try_into().ok()?).to_f32()),
        DType::F32 => Number::Single(f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::F64 => Number::Double(f64::from_le_bytes(bytes.try_into().ok()?)),
        DType::I8 => Number::Int(i8::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::I16 => Number::Int(i16::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::I32 => Number::Int(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::I64 => Number::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
        DType::U8 => Number::Int(bytes.first().copied()?.into()),
        DType::Bool => Number::Bool(bytes.first().copied()? != 0),
        _ => return None,
    })
}

/// The value of one leaf in a row.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Values {
    /// A sample without a value.
    Absent {
        r#type: String,
        value: (),
    },
    Text {
        r#type: &'static str,
        value: String,
    },
    Bytes {
        r#type: &'static str,
        bytes: usize,
        /// In hex.
        value: String,
    },
    Dense {
        r#type: String,
        shape: Vec<usize>,
        /// The name of the value, if it is that of an enum.
        #[serde(skip_serializing_if = "Option::is_none")]
        variant: Option<String>,
        min: Option<Number>,
        max: Option<Number>,
        mean: Option<f64>,
        nan: usize,
        values: Vec<Number>,
    },
}

impl Values {
    /// `sizes` are the dimensions of a ragged tensor with several dynamic dimensions.
    pub(crate) fn new(leaf: &Leaf, bytes: Option<&[u8]>, sizes: &[u8]) -> Self {
        let Some(bytes) = bytes else { return Self::Absent { r#type: leaf.described(), value: () } };
        match &leaf.kind {
            LeafKind::Dense { dtype, shape } => Self::dense(*dtype, shape.clone(), bytes),
            LeafKind::Ragged { dtype, shape } => {
                Self::dense(*dtype, shape_of(shape, bytes.len() / dtype.size(), sizes), bytes)
            }
            LeafKind::Text => {
                Self::Text { r#type: "String", value: String::from_utf8_lossy(bytes).into_owned() }
            }
            _ => Self::Bytes { r#type: "bytes", bytes: bytes.len(), value: ids::hex(bytes) },
        }
    }

    fn dense(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let values = numbers(dtype, bytes);
        let real: Vec<Number> = values.iter().copied().filter(|value| !value.as_f64().is_nan()).collect();
        let by = |a: &&Number, b: &&Number| compare(**a, **b);
        let mean = real.iter().map(|value| value.as_f64()).sum::<f64>() / real.len() as f64;
        Self::Dense {
            r#type: dtype.to_string(),
            shape,
            variant: None,
            min: real.iter().min_by(by).copied(),
            max: real.iter().max_by(by).copied(),
            mean: mean.is_finite().then_some(mean),
            nan: values.len() - real.len(),
            values,
        }
    }

    /// With the name of the variant, if the value is that of an enum.
    pub(crate) fn named(mut self, variants: Option<&Variants>) -> Self {
        if let Self::Dense { variant, values, .. } = &mut self
            && let (Some(variants), [number]) = (variants, &values[..])
        {
            *variant = variants.name(*number).map(str::to_owned);
        }
        self
    }

    /// The type and the shape.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Absent { r#type, .. } => r#type.clone(),
            Self::Text { r#type, .. } | Self::Bytes { r#type, .. } => (*r#type).to_owned(),
            Self::Dense { r#type, shape, .. } => format!("{type} {shape:?}"),
        }
    }

    /// The first elements, or the start of the text, in about `room` characters.
    pub(crate) fn preview(&self, room: usize) -> String {
        match self {
            Self::Absent { .. } => "none".to_owned(),
            Self::Bytes { value, .. } => {
                let more = if value.len() > room { "…" } else { "" };
                format!("{}{more}", value.get(..room).unwrap_or(value))
            }
            Self::Text { value, .. } => {
                let start: String = value.chars().take(room).collect();
                let more = if start.len() < value.len() { "…" } else { "" };
                format!("{start:?}{more}")
            }
            Self::Dense { values, variant: Some(name), .. } => {
                let number = values.first().map(ToString::to_string).unwrap_or_default();
                format!("{number} ({name})")
            }
            Self::Dense { values, shape, .. } if shape.is_empty() => {
                values.first().map(ToString::to_string).unwrap_or_default()
            }
            Self::Dense { values, .. } => listed(values.iter().map(|value| short(*value)), room),
        }
    }

    /// `min … max, mean …`, and the number of NaN values.
    pub(crate) fn summary(&self) -> String {
        let Self::Dense { min: Some(min), max: Some(max), mean, nan, shape, .. } = self else {
            return match self {
                Self::Text { value, .. } => format!("{} characters", value.chars().count()),
                Self::Bytes { bytes, .. } => human::counted(*bytes as u64, "byte"),
                Self::Absent { .. } => String::new(),
                Self::Dense { values, .. } if values.is_empty() => "no elements".to_owned(),
                Self::Dense { nan, .. } => format!("{nan} NaN"),
            };
        };
        let nan = if *nan > 0 { format!(", {nan} NaN") } else { String::new() };
        if shape.is_empty() {
            return nan.trim_start_matches(", ").to_owned();
        }
        let mean = mean.map_or_else(|| "?".to_owned(), |mean| short(Number::Double(mean)));
        format!("min {}, max {}, mean {mean}{nan}", short(*min), short(*max))
    }
}

/// The first elements, in about `room` characters; at least one.
pub(crate) fn listed(elements: impl ExactSizeIterator<Item = String>, room: usize) -> String {
    let count = elements.len();
    let (mut text, mut shown) = (String::new(), 0);
    for element in elements {
        let next = format!("{}{element}", if shown > 0 { ", " } else { "" });
        if shown > 0 && text.len() + next.len() > room {
            break;
        }
        text.push_str(&next);
        shown += 1;
    }
    let more = if shown < count { ", …" } else { "" };
    format!("[{text}{more}]")
}

/// The shape of one row of a ragged tensor with this number of elements.
pub(crate) fn shape_of(shape: &[usize], elements: usize, sizes: &[u8]) -> Vec<usize> {
    let known: usize = shape.iter().filter(|&&dim| dim != DYNAMIC_DIM).product();
    let mut sizes = sizes.as_chunks().0.iter().map(|size| u64::from_le_bytes(*size) as usize);
    let is_single = shape.iter().filter(|&&dim| dim == DYNAMIC_DIM).count() == 1;
    let single = elements / known.max(1);
    let any = |dim: &usize| match *dim {
        DYNAMIC_DIM if is_single => single,
        DYNAMIC_DIM => sizes.next().unwrap_or(0),
        dim => dim,
    };
    shape.iter().map(any).collect()
}

fn compare(a: Number, b: Number) -> std::cmp::Ordering {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (a, b) => a.as_f64().total_cmp(&b.as_f64()),
    }
}

/// A number with about five digits.
pub(crate) fn short(value: Number) -> String {
    let number = match value {
        Number::Single(value) => f64::from(value),
        Number::Double(value) => value,
        other => return other.to_string(),
    };
    let size = number.abs();
    match () {
        () if number == 0.0 || !number.is_finite() => number.to_string(),
        () if (1e-4..1e6).contains(&size) => {
            let digits = (4 - size.log10().floor() as i64).clamp(0, 8) as usize;
            let text = format!("{number:.digits$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
        () => format!("{number:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(kind: LeafKind, bytes: &[u8], sizes: &[u8]) -> Values {
        Values::new(&Leaf { name: "value".to_owned(), kind, optional: true }, Some(bytes), sizes)
    }

    fn dense(dtype: DType, shape: &[usize], bytes: &[u8]) -> Values {
        leaf(LeafKind::Dense { dtype, shape: shape.to_vec() }, bytes, &[])
    }

    #[test]
    fn every_dtype_is_decoded() {
        let one: [(DType, &[u8], &str); 10] = [
            (DType::F16, &f16::from_f32(-1.5).to_le_bytes(), "-1.5"),
            (DType::BF16, &bf16::from_f32(-1.5).to_le_bytes(), "-1.5"),
            (DType::F32, &0.1_f32.to_le_bytes(), "0.1"),
            (DType::F64, &0.1_f64.to_le_bytes(), "0.1"),
            (DType::I8, &(-2_i8).to_le_bytes(), "-2"),
            (DType::I16, &(-300_i16).to_le_bytes(), "-300"),
            (DType::I32, &70_000_i32.to_le_bytes(), "70000"),
            (DType::I64, &i64::MIN.to_le_bytes(), "-9223372036854775808"),
            (DType::U8, &[200], "200"),
            (DType::Bool, &[1], "true"),
        ];
        for (dtype, bytes, text) in one {
            assert_eq!(dense(dtype, &[], bytes).preview(60), text);
        }
    }

    #[test]
    fn what_is_not_a_number_is_counted_and_left_out() {
        let bytes: Vec<u8> =
            [1.0, f32::NAN, 3.0].iter().flat_map(|value: &f32| value.to_le_bytes()).collect();
        let values = dense(DType::F32, &[3], &bytes);
        assert_eq!(values.summary(), "min 1, max 3, mean 2, 1 NaN");
        let json = serde_json::to_string(&values).unwrap();
        assert!(json.ends_with(r#""mean":2.0,"nan":1,"values":[1.0,"NaN",3.0]}"#), "{json}");
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        let bytes: Vec<u8> = [i64::MAX - 1, i64::MAX].iter().flat_map(|value| value.to_le_bytes()).collect();
        let Values::Dense { min, max, .. } = dense(DType::I64, &[2], &bytes) else { panic!("dense") };
        assert_eq!((min, max), (Some(Number::Int(i64::MAX - 1)), Some(Number::Int(i64::MAX))));
    }

    #[test]
    fn a_ragged_row_tells_its_shape() {
        let ragged = |shape: &[usize], sizes: &[u8]| {
            let kind = LeafKind::Ragged { dtype: DType::U8, shape: shape.to_vec() };
            leaf(kind, &[1, 2, 3, 4, 5, 6], sizes).kind()
        };
        assert_eq!(ragged(&[DYNAMIC_DIM, 3], &[]), "u8 [2, 3]");
        let sizes: Vec<u8> = [3_u64, 2].iter().flat_map(|size| size.to_le_bytes()).collect();
        assert_eq!(ragged(&[DYNAMIC_DIM, 1, DYNAMIC_DIM], &sizes), "u8 [3, 1, 2]");
    }
}
