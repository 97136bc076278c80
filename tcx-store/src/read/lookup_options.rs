//! How rows are looked up.

use std::sync::Arc;

use crate::computed::recompute::RecomputeSession;
use crate::read::destination::Destination;

/// How [`Store::lookup_with`](crate::Store::lookup_with) looks rows up. The default is that of
/// [`Store::lookup`](crate::Store::lookup).
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Field, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store};
/// # const NUMBER: ColumnType = ColumnType::Dense { dtype: DType::U8, shape: &[] };
/// # const OUTPUT: ColumnType = ColumnType::Struct(&[
/// #     Field { name: "score", column: NUMBER },
/// #     Field { name: "label", column: NUMBER },
/// # ]);
/// # let dir = tempfile::tempdir()?;
/// # let spec = Spec::new("scores_v1", KeyType::Text, &OUTPUT, Identity::default(), Vec::new())?;
/// # let store = Store::open(dir.path(), spec, &Options::default())?;
/// # let mut rows = store.lookup(Keys::text(["cat"], 0)?)?;
/// # store.insert(&mut rows, &[0], vec![Column::dense(&[1]), Column::dense(&[7])])?;
/// let labels = LookupOptions { leaves: Some(&[1].into()), ..LookupOptions::default() };
/// let rows = store.lookup_with(Keys::text(["cat"], 0)?, labels)?;
/// assert_eq!(rows.bytes(1, 0), [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct LookupOptions<'a, 'd> {
    /// The numbers of the leaves that are going to be read: the others are neither read nor verified. `None` means all.
    pub leaves: Option<&'a Arc<[usize]>>,
    /// Memory to which rows are copied while the next ones are looked up. [`Lookup::copy_rest`](crate::Lookup::copy_rest) copies
    /// the others.
    pub destinations: &'a mut [Destination<'d>],
    /// Only rows that this session has computed are found: all others are missing.
    pub recompute: Option<&'a Arc<RecomputeSession>>,
    /// Hits and misses are not counted: for an inspection of the existing rows.
    pub uncounted: bool,
}

impl LookupOptions<'_, '_> {
    /// Those of a lookup whose hits and misses are not counted.
    pub fn uncounted() -> Self {
        Self { uncounted: true, ..Self::default() }
    }
}
