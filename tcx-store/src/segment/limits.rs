//! How large a segment may become.

use crate::schema::leaf::Leaf;

/// The most bytes of a segment, unless a single row has more.
pub(crate) const MAX_SEGMENT_BYTES: usize = 512 << 20;

/// Arrow wants fewer than 2³¹ elements in a column of a record batch.
const SEGMENT_ELEMENTS: usize = i32::MAX as usize;

/// The most rows of these leaves in one segment.
pub(crate) fn most_rows(leaves: &[Leaf]) -> usize {
    #[cfg(test)]
    if let Some(most) = tests::MOST_ROWS.get() {
        return most;
    }
    let widest = leaves.iter().filter_map(|leaf| leaf.kind.elements()).max().unwrap_or(1);
    (SEGMENT_ELEMENTS / widest.max(1)).max(1)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Instead of the limit, in this thread.
        pub(crate) static MOST_ROWS: Cell<Option<usize>> = const { Cell::new(None) };
    }
}
