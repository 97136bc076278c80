//! Nested lists, as which other programs write tensors whose sizes vary from row to row.

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, LargeListArray, ListArray, OffsetSizeTrait,
};
use tcx_store::{DYNAMIC_DIM, Leaf, LeafKind};

use crate::formats::nulls::{no_nulls, present};

/// The rows of a column of lists.
pub(crate) struct Nested {
    /// The elements of all rows, one after the other.
    pub(crate) elements: ArrayRef,
    /// The depth of the lists.
    pub(crate) depth: usize,
    /// The sizes of each row, one for each depth.
    pub(crate) rows: Vec<Vec<usize>>,
}

impl Nested {
    /// Flattens lists; `None` if the array has no lists.
    ///
    /// # Errors
    ///
    /// Returns an error if a list or an element is null, or if the lists of one row have different lengths.
    pub(crate) fn new(array: &ArrayRef) -> Result<Option<Self>, String> {
        let (mut elements, mut depth) = (array.clone(), 0);
        let mut rows = vec![Vec::new(); array.len()];
        // The number of lists of this depth in each row.
        let mut counts = vec![1; array.len()];
        no_nulls(&elements)?;
        while let Some((values, lengths)) = lists(&elements) {
            no_nulls(&values)?;
            let mut lengths = lengths.into_iter();
            for (row, count) in rows.iter_mut().zip(&mut counts) {
                let own: Vec<usize> = lengths.by_ref().take(*count).collect();
                let size = own.first().copied().unwrap_or(0);
                if own.iter().any(|len| *len != size) {
                    return Err(
                        "the lists of a row have different lengths, so the row is not a tensor".to_owned()
                    );
                }
                row.push(size);
                *count *= size;
            }
            (elements, depth) = (values, depth + 1);
        }
        Ok((depth > 0).then_some(Self { elements, depth, rows }))
    }

    /// Checks the sizes that are known: below an empty list none is.
    pub(crate) fn check(&self, kind: &LeafKind, shape: &[usize]) -> Result<(), String> {
        let fits = |sizes: &[usize]| {
            let known = sizes.iter().scan(1, |lists, size| {
                let is_known = *lists > 0;
                *lists *= size;
                Some((is_known, size))
            });
            known.zip(shape).all(|((is_known, size), dim)| !is_known || *dim == DYNAMIC_DIM || size == dim)
        };
        match self.rows.iter().find(|sizes| !fits(sizes)) {
            Some(sizes) => Err(format!("expected {kind}, found a row of {sizes:?}")),
            None => Ok(()),
        }
    }
}

/// The elements of the lists and the length of each; `None` if the array has no lists.
pub(crate) fn lists(array: &dyn Array) -> Option<(ArrayRef, Vec<usize>)> {
    let any = array.as_any();
    if let Some(list) = any.downcast_ref::<FixedSizeListArray>() {
        let len = list.value_length() as usize;
        return Some((list.values().slice(list.value_offset_at(0), list.len() * len), vec![len; list.len()]));
    }
    let list = any.downcast_ref::<ListArray>().map(variable);
    list.or_else(|| any.downcast_ref::<LargeListArray>().map(variable))
}

/// The elements of all lists, and the length of each.
fn variable<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> (ArrayRef, Vec<usize>) {
    let offsets = list.value_offsets();
    let (start, end) = (offsets[0].as_usize(), offsets[list.len()].as_usize());
    (list.values().slice(start, end - start), list.offsets().lengths().collect())
}

/// The rows of the column of sizes that follows a tensor with several dynamic dimensions; `None` if the tensor's lists are
/// flat, so that they do not give its sizes.
pub(crate) fn sizes(leaf: &Leaf, array: &ArrayRef) -> Result<Option<Vec<Option<Vec<u8>>>>, String> {
    let LeafKind::Ragged { shape, .. } = &leaf.kind else { return Ok(None) };
    if shape.iter().filter(|dim| **dim == DYNAMIC_DIM).count() < 2 {
        return Ok(None);
    }
    let (present, picked) = present(array)?;
    let Some(nested) = Nested::new(&picked)?.filter(|nested| nested.depth == shape.len()) else {
        return Ok(None);
    };
    let of_row = |sizes: &[usize]| -> Vec<u8> {
        let differing = sizes.iter().zip(shape).filter(|(_, dim)| **dim == DYNAMIC_DIM);
        differing.flat_map(|(size, _)| (*size as i64).to_le_bytes()).collect()
    };
    let mut rows = vec![Some(of_row(&vec![0; shape.len()])); array.len()];
    present.into_iter().zip(&nested.rows).for_each(|(row, sizes)| rows[row] = Some(of_row(sizes)));
    Ok(Some(rows))
}
