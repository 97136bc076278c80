//! Outputs without a tolerance: whole numbers, texts, bytes, and whether a value is present.
//!
//! Other kernels change the last bits of what they are rounded from, so a few samples change in any correct
//! module. If most samples change, the output depends on the batch.

use std::collections::BTreeMap;

use tcx_store::{Column, DType, Leaf, LeafKind};

use crate::cached::checks::compare::{Broken, Tolerance};

/// An array of whole numbers differs if more than this part of its elements does, one in four: a mask or a quantized vector
/// changes in some elements of each sample.
const ELEMENTS: usize = 4;

/// How many samples were compared with another batch, and how many of them differ.
#[derive(Debug, Default)]
pub(crate) struct Tipped {
    compared: usize,
    /// By the name of a field: how many samples differ, and the id of the last one.
    fields: BTreeMap<Box<str>, (usize, String)>,
}

impl Tipped {
    /// Of pairs of rows, one of `a` and one of `b`; `named` is the id of a row of `a`.
    pub(crate) fn of(
        leaves: &[Leaf],
        a: &[Column],
        b: &[Column],
        pairs: impl Iterator<Item = (usize, usize)>,
        named: &dyn Fn(usize) -> String,
    ) -> Self {
        let mut tipped = Self::default();
        for (of_a, of_b) in pairs {
            tipped.compared += 1;
            for ((leaf, a), b) in leaves.iter().zip(a).zip(b) {
                let kind = &leaf.kind;
                let differs = a.is_present(of_a) != b.is_present(of_b)
                    || is_another(kind, a.row(of_a, kind), b.row(of_b, kind));
                if differs {
                    let (count, example) = tipped.fields.entry(leaf.name.as_str().into()).or_default();
                    (*count, *example) = (*count + 1, named(of_a));
                }
            }
        }
        tipped
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        for (field, (more, last)) in other.fields {
            let (count, example) = self.fields.entry(field).or_default();
            (*count, *example) = (*count + more, last);
        }
    }

    pub(crate) fn compared(&self) -> usize {
        self.compared
    }

    /// Whether any sample differs.
    pub(crate) fn is_suspect(&self) -> bool {
        !self.fields.is_empty()
    }

    /// The field in which most samples differ.
    pub(crate) fn most(&self) -> Option<Broken> {
        let (field, (count, example)) =
            self.fields.iter().find(|(_, (count, _))| 2 * count > self.compared)?;
        let how =
            format!("is not the same in {count} of {} samples, one of them with id {example}", self.compared);
        Some(Broken::of_field(Tolerance::Rebatched, field, &how))
    }
}

/// Whether a row is another one, not the same with some elements tipped over. Floating-point numbers have a tolerance instead.
fn is_another(kind: &LeafKind, a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return false;
    }
    let Some(dtype) = kind.dtype() else { return true };
    let size = dtype.size();
    if matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64) || a.len() != b.len() {
        return false;
    }
    if a.len() == size {
        return true;
    }
    // Where numbers are rounded to whole ones, they change to the next one.
    let allowed = u128::from(dtype != DType::Bool);
    let elements = a.chunks_exact(size).zip(b.chunks_exact(size));
    let others = elements.filter(|(a, b)| integer(dtype, a).abs_diff(integer(dtype, b)) > allowed).count();
    ELEMENTS * others > a.len() / size
}

/// A little-endian integer of any width.
fn integer(dtype: DType, bytes: &[u8]) -> i128 {
    let is_negative =
        !matches!(dtype, DType::U8 | DType::Bool) && bytes.last().is_some_and(|last| *last >= 0x80);
    let mut wide = if is_negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: DType, shape: Vec<usize>, a: &[u8], b: &[u8]) -> bool {
        is_another(&LeafKind::Dense { dtype, shape }, a, b)
    }

    #[test]
    fn one_number_and_a_text_are_another_if_they_differ_at_all() {
        assert!(of(DType::U8, vec![], &[1], &[2]) && !of(DType::U8, vec![], &[2], &[2]));
        assert!(of(DType::I64, vec![], &1_i64.to_le_bytes(), &0_i64.to_le_bytes()));
        assert!(is_another(&LeafKind::Text, b"cat", b"dog") && is_another(&LeafKind::Bytes, b"cat", b"cats"));
    }

    #[test]
    fn an_array_is_another_if_more_than_a_quarter_differs_by_more_than_one() {
        let with =
            |count: usize, value: u8| (0..8).map(|at| if at < count { value } else { 7 }).collect::<Vec<_>>();
        let differs = |count, value| of(DType::U8, vec![8], &with(count, value), &with(8, 7));
        assert!(!differs(8, 8) && !differs(8, 6) && !differs(2, 200) && differs(3, 9));
        let truth = |count| of(DType::Bool, vec![8], &with(count, 1), &with(count, 0));
        assert!(!truth(2) && truth(3));
        let signed = |a: i16, b: i16| {
            of(
                DType::I16,
                vec![2],
                &[a, a].map(i16::to_le_bytes).concat(),
                &[b, b].map(i16::to_le_bytes).concat(),
            )
        };
        assert!(!signed(-1, 0) && signed(-1, 1) && signed(i16::MIN, i16::MAX));
    }

    #[test]
    fn floating_point_numbers_have_a_tolerance_instead() {
        assert!(!of(DType::F32, vec![], &1_f32.to_le_bytes(), &2_f32.to_le_bytes()));
    }
}
