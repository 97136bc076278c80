//! What a valid row of a leaf contains.

use crate::schema::leaf::LeafKind;

/// What the bytes of a row have to be, beyond being as many as a row has: nothing else is taken, and nothing else is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Constraint {
    Any,
    /// UTF-8.
    Text,
    /// The elements of a ragged tensor: a multiple of this number of bytes.
    Elements(usize),
    /// The same, and as many as the sizes in the next column require.
    Sized(usize),
}

impl Constraint {
    pub(crate) fn of(kind: &LeafKind) -> Self {
        match kind {
            LeafKind::Dense { .. } | LeafKind::Bytes => Self::Any,
            LeafKind::Text => Self::Text,
            LeafKind::Ragged { .. } => {
                let bytes = kind.unit().saturating_mul(kind.element_bytes());
                if kind.varying() > 1 { Self::Sized(bytes) } else { Self::Elements(bytes) }
            }
        }
    }

    /// Whether a row may be this; `sizes` is called for what the next column holds.
    pub(crate) fn accepts<B: AsRef<[u8]>>(self, row: &[u8], sizes: impl FnOnce() -> Option<B>) -> bool {
        match self {
            Self::Any => true,
            Self::Text => std::str::from_utf8(row).is_ok(),
            Self::Elements(bytes) => row.len().is_multiple_of(bytes),
            Self::Sized(bytes) => {
                let size = |size: &[u8; 8]| usize::try_from(i64::from_le_bytes(*size)).ok();
                let product = |product: usize, next: &[u8; 8]| product.checked_mul(size(next)?);
                sizes().and_then(|sizes| sizes.as_ref().as_chunks().0.iter().try_fold(bytes, product))
                    == Some(row.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, DYNAMIC_DIM};

    fn accepts(kind: &LeafKind, row: &[u8], sizes: &[i64]) -> bool {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        Constraint::of(kind).accepts(row, || Some(&sizes))
    }

    #[test]
    fn text_is_utf8_and_bytes_are_anything() {
        assert!(accepts(&LeafKind::Text, "é".as_bytes(), &[]));
        assert!(!accepts(&LeafKind::Text, &[0xff], &[]));
        assert!(accepts(&LeafKind::Bytes, &[0xff], &[]));
    }

    #[test]
    fn a_ragged_row_has_whole_parts() {
        let tokens = LeafKind::Ragged { dtype: DType::F16, shape: vec![DYNAMIC_DIM, 3] };
        for (bytes, whole) in [(0, true), (2, false), (6, true), (7, false), (600, true)] {
            assert_eq!(accepts(&tokens, &vec![0; bytes], &[]), whole, "{bytes} bytes");
        }
    }

    #[test]
    fn a_ragged_row_is_as_large_as_its_sizes_say() {
        let maps = LeafKind::Ragged { dtype: DType::I16, shape: vec![DYNAMIC_DIM, 3, DYNAMIC_DIM] };
        assert!(accepts(&maps, &[0; 36], &[2, 3]) && accepts(&maps, &[], &[0, 9]));
        for sizes in [[3, 3], [-2, -3], [1 << 62, 6], [0, 0], [i64::MAX, i64::MAX]] {
            assert!(!accepts(&maps, &[0; 36], &sizes), "{sizes:?}");
        }
        assert!(!Constraint::of(&maps).accepts(&[0; 36], || None::<&[u8]>));
    }
}
