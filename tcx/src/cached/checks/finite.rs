//! Computed numbers that are none: NaN and the infinities.

use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use tcx_store::{Column, DType, Keys, Leaf, LeafKind};

use crate::cached::Cached;
use crate::ids::name::name;
use crate::{Error, ErrorKind, Result};

/// Counts the rows that hold such numbers, and refuses them if it is asked to.
#[derive(Debug, Default)]
pub(crate) struct FiniteWatch {
    refuses: bool,
    rows: AtomicU64,
}

impl<M> Cached<M> {
    /// From now on, outputs that hold NaN or an infinity are an error, and nothing of their batch is stored. Without it
    /// they are stored as they are, and counted in [`Stats::non_finite_rows`](crate::Stats::non_finite_rows).
    ///
    /// ```
    /// # use tcx::{Cache, Extractor, cached_module};
    /// # #[cached_module(id = "finite_v1")]
    /// # struct Logs {}
    /// # impl Extractor for Logs {
    /// #     type Input = Vec<f32>;
    /// #     type Output = Vec<f32>;
    /// #     fn forward(&self, x: &Vec<f32>) -> tcx::Result<Vec<f32>> {
    /// #         Ok(x.iter().map(|x| x.ln()).collect())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = Cache::open(dir.path())?;
    /// let logs = cache.module(Logs {})?.reject_non_finite();
    /// let error = logs.forward(&["one", "zero"], &vec![1., 0.]).unwrap_err();
    /// assert!(error.to_string().contains("the output for id \"zero\" is -inf"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// What was stored before is served.
    #[must_use]
    pub fn reject_non_finite(mut self) -> Self {
        self.finite.refuses = true;
        self
    }
}

impl FiniteWatch {
    /// The rows that have been computed with such numbers, refused ones too.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Looks at computed columns; their rows are of the keys at `positions`.
    pub(crate) fn check(
        &self,
        id: &str,
        leaves: &[Leaf],
        columns: &[Column],
        keys: &Keys,
        positions: &[usize],
    ) -> Result<()> {
        let floats: Vec<_> = leaves.iter().zip(columns).filter(|(leaf, _)| is_float(&leaf.kind)).collect();
        let mut first = None;
        for (row, &position) in positions.iter().enumerate() {
            let found = floats.iter().find_map(|(leaf, column)| {
                let value = first_non_finite(&leaf.kind, column.row(row, &leaf.kind))?;
                Some((*leaf, position, value))
            });
            if let Some(found) = found {
                self.rows.fetch_add(1, Ordering::Relaxed);
                first.get_or_insert(found);
            }
        }
        match first {
            Some((leaf, position, (element, value))) if self.refuses => {
                let found = format!("is {value} at element {element}");
                let message =
                    format!("field `{}` of the output for id {} {found}", leaf.name, name(keys, position));
                let remedy =
                    "fix the input or the network, or remove `reject_non_finite` to store such values";
                let error = Error::new(ErrorKind::InvalidOutput, message).in_module(id);
                let error = error.with_remedy(remedy).with_field(&leaf.name);
                Err(error.with_expected("finite numbers", value.to_string()))
            }
            _ => Ok(()),
        }
    }
}

fn is_float(kind: &LeafKind) -> bool {
    use DType::{BF16, F16, F32, F64};
    matches!(kind.dtype(), Some(F16 | BF16 | F32 | F64))
}

/// The place and the value of the first such number in a row.
fn first_non_finite(kind: &LeafKind, row: &[u8]) -> Option<(usize, f64)> {
    match kind.dtype()? {
        DType::F16 => {
            first(row, |x| u16::from_le_bytes(x) & 0x7c00 == 0x7c00, |x| f16::from_le_bytes(x).to_f64())
        }
        DType::BF16 => {
            first(row, |x| u16::from_le_bytes(x) & 0x7f80 == 0x7f80, |x| bf16::from_le_bytes(x).to_f64())
        }
        DType::F32 => {
            first(row, |x| !f32::from_le_bytes(x).is_finite(), |x| f64::from(f32::from_le_bytes(x)))
        }
        DType::F64 => first(row, |x| !f64::from_le_bytes(x).is_finite(), f64::from_le_bytes),
        _ => None,
    }
}

fn first<const N: usize>(
    row: &[u8],
    is_odd: impl Fn([u8; N]) -> bool,
    value: impl Fn([u8; N]) -> f64,
) -> Option<(usize, f64)> {
    let elements = row.as_chunks::<N>().0;
    // Almost every row has none; without a branch per element, the compiler looks at many at once.
    if !elements.iter().fold(false, |odd, &element| odd | is_odd(element)) {
        return None;
    }
    let place = elements.iter().position(|&element| is_odd(element))?;
    Some((place, value(elements[place])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dtype: DType, bytes: &[u8]) -> Option<(usize, f64)> {
        first_non_finite(&LeafKind::Dense { dtype, shape: vec![bytes.len() / dtype.size()] }, bytes)
    }

    #[test]
    fn nan_and_infinity_are_found_in_every_dtype_and_nothing_else_is() {
        let (large, odd) = (f16::MAX.to_le_bytes(), f16::NEG_INFINITY.to_le_bytes());
        assert_eq!(found(DType::F16, &large), None);
        assert_eq!(found(DType::F16, &[large, odd].concat()), Some((1, f64::NEG_INFINITY)));
        let (large, odd) = (bf16::MIN.to_le_bytes(), bf16::NAN.to_le_bytes());
        assert_eq!(found(DType::BF16, &large), None);
        assert!(
            found(DType::BF16, &[large, odd].concat()).is_some_and(|(place, x)| place == 1 && x.is_nan())
        );
        let numbers = [f32::MAX, f32::MIN_POSITIVE / 2., 0., f32::INFINITY].map(f32::to_le_bytes);
        assert_eq!(found(DType::F32, &numbers[..3].concat()), None);
        assert_eq!(found(DType::F32, &numbers.concat()), Some((3, f64::INFINITY)));
        let numbers = [f64::MIN, -0., f64::NAN].map(f64::to_le_bytes);
        assert_eq!(found(DType::F64, &numbers[..2].concat()), None);
        assert!(found(DType::F64, &numbers.concat()).is_some_and(|(place, x)| place == 2 && x.is_nan()));
        assert_eq!(found(DType::I64, &[0xff; 16]), None);
    }
}
