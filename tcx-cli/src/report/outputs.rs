//! The figures of one output, from a sample of the rows.

use serde::Serialize;
use tcx_store::{DType, DYNAMIC_DIM, Inspection, LeafKind, Row};

use super::histogram::Histogram;
use super::projection::{Projection, project};
use super::shades::{Shade, Shades};
use crate::text::ids;
use crate::text::values::{Number, numbers, shape_of};
use crate::text::variants::Variants;

/// The figures of one output of tensors, numbers or enums.
#[derive(Debug, Serialize)]
pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) r#type: String,
    /// The rows of each variant, if the output is an enum whose names are known.
    pub(crate) variants: Option<Vec<Count>>,
    /// The finite Euclidean norms of the rows; `None` for an enum.
    pub(crate) norms: Option<Histogram>,
    /// The sizes of the dimension that varies from row to row, or if several vary, the numbers of elements.
    pub(crate) lengths: Option<Histogram>,
    /// The number of NaN values in a row; `None` if there are no NaN values.
    pub(crate) nan: Option<Histogram>,
    /// Rows with an infinite element.
    pub(crate) infinite_rows: usize,
    pub(crate) projection: Option<Projection>,
}

/// The rows of a variant.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Count {
    /// `None` for a number that is not that of a variant.
    pub(crate) name: Option<String>,
    pub(crate) number: Number,
    pub(crate) rows: u64,
}

/// An output in the sample.
struct Sampled<'a> {
    number: usize,
    dtype: DType,
    /// The rows that have a value.
    rows: Vec<&'a Row<'a>>,
    values: Vec<Vec<f64>>,
}

impl Leaf {
    /// `None` for text and bytes.
    pub(super) fn new(
        inspection: &Inspection,
        number: usize,
        sample: &[Row<'_>],
        shades: Option<&Shades>,
    ) -> Option<Self> {
        let (spec, leaf) = (inspection.spec(), &inspection.spec().leaves()[number]);
        let (dtype, ragged) = match &leaf.kind {
            LeafKind::Dense { dtype, .. } => (*dtype, None),
            LeafKind::Ragged { dtype, shape } => (*dtype, Some(shape)),
            _ => return None,
        };
        let of = |bytes: &[u8]| numbers(dtype, bytes).into_iter().map(Number::as_f64).collect();
        let rows: Vec<_> = sample.iter().filter(|row| row.leaf(number).is_some()).collect();
        let values = rows.iter().filter_map(|row| row.leaf(number)).map(of).collect();
        let sampled = Sampled { number, dtype, rows, values };
        let (name, r#type) = (leaf.name.clone(), leaf.described());
        if let Some(variants) = Variants::of(spec, number) {
            let variants = Some(sampled.counts(&variants));
            let (norms, lengths, nan, projection) = (None, None, None, None);
            return Some(Self { name, r#type, variants, norms, lengths, nan, infinite_rows: 0, projection });
        }
        let nan = sampled.count(|x| x.is_nan());
        let projected = || sampled.projection(|row| ids::show(spec.key_type(), row.key), shades);
        Some(Self {
            name,
            r#type,
            variants: None,
            norms: Histogram::of(&sampled.norms()),
            lengths: ragged.and_then(|shape| Histogram::of(&sampled.lengths(shape))),
            nan: nan.iter().any(|count| *count > 0.0).then(|| Histogram::of(&nan)).flatten(),
            infinite_rows: sampled.count(|x| x.is_infinite()).iter().filter(|count| **count > 0.0).count(),
            projection: if ragged.is_none() { projected() } else { None },
        })
    }
}

impl Sampled<'_> {
    fn norms(&self) -> Vec<f64> {
        self.values.iter().map(|row| row.iter().map(|x| x * x).sum::<f64>().sqrt()).collect()
    }

    /// How many elements of each row are so.
    fn count(&self, is: fn(&f64) -> bool) -> Vec<f64> {
        self.values.iter().map(|row| row.iter().filter(|x| is(x)).count() as f64).collect()
    }

    fn lengths(&self, shape: &[usize]) -> Vec<f64> {
        let varying: Vec<usize> = (0..shape.len()).filter(|dim| shape[*dim] == DYNAMIC_DIM).collect();
        let length = |row: &Vec<f64>| match varying[..] {
            [dim] => shape_of(shape, row.len(), &[])[dim],
            _ => row.len(),
        };
        self.values.iter().map(|row| length(row) as f64).collect()
    }

    /// The rows of each variant, in the order of their declaration, and of each number that is not that of a variant.
    fn counts(&self, variants: &Variants) -> Vec<Count> {
        let mut counts: Vec<Count> = variants
            .numbered()
            .map(|(name, number)| Count { name: Some(name.to_owned()), number, rows: 0 })
            .collect();
        for row in &self.rows {
            let bytes = row.leaf(self.number).unwrap_or_default();
            let Some(number) = numbers(self.dtype, bytes).first().copied() else { continue };
            match counts.iter_mut().find(|own| own.number == number) {
                Some(own) => own.rows += 1,
                None => counts.push(Count { name: None, number, rows: 1 }),
            }
        }
        counts
    }

    fn projection(&self, id: impl Fn(&Row<'_>) -> String, shades: Option<&Shades>) -> Option<Projection> {
        let finite = || {
            let rows = self.values.iter().zip(&self.rows);
            rows.filter(|(row, _)| row.iter().all(|x| x.is_finite()))
        };
        let named: Vec<(String, &[f64])> = finite().map(|(row, own)| (id(own), row.as_slice())).collect();
        let mut projection = project(&named)?;
        if let Some(shades) = shades {
            projection.colored_by = Some(shades.name.clone());
            let values: Vec<Option<Shade>> = finite().map(|(_, own)| shades.of(own)).collect();
            projection.points.iter_mut().zip(values).for_each(|(point, value)| point.value = value);
        }
        Some(projection)
    }
}
