//! What a store is opened for.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, Result};
use crate::schema::identity::Identity;
use crate::schema::key::KeyType;
use crate::schema::leaf::{ColumnType, Leaf};
use crate::schema::stamp::{StampType, stamp_leaf};
use crate::storage::name::check_module_id;

/// The most dimensions that change 0 has room for.
const MAX_DIMENSIONS: usize = u8::MAX as usize;

/// The module, keys, schema and identity that a store is opened for.
///
/// ```
/// use tcx_store::{ColumnType, DType, Identity, KeyType, Spec};
///
/// let output = ColumnType::Dense { dtype: DType::F32, shape: &[512] };
/// let spec = Spec::new("clip_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// assert_eq!(spec.module_id(), "clip_v1");
/// assert_eq!(spec.leaves()[0].described(), "f32 [512]");
/// assert!(Spec::new("no/folder", KeyType::Text, &output, Identity::default(), Vec::new()).is_err());
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spec {
    pub(crate) module_id: String,
    pub(crate) key_type: KeyType,
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) identity: Identity,
    pub(crate) provenance: Vec<(String, String)>,
}

impl Spec {
    /// Describes a store. `provenance` is kept for people to read; it decides nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the module id cannot name a folder, or if two columns have the same name or one has a name of tcx's
    /// own (`__…`). Also returns an error if a row has no elements, or 2³¹ and more, which Arrow cannot store, or more than 255
    /// dimensions.
    pub fn new(
        module_id: &str,
        key_type: KeyType,
        output: &ColumnType,
        identity: Identity,
        provenance: Vec<(String, String)>,
    ) -> Result<Self> {
        let leaves = output.leaves();
        check_leaves(&leaves)?;
        Self::of_leaves(module_id, key_type, leaves, identity, provenance)
    }

    /// The same, whose rows have [stamps](StampType) of this kind.
    #[must_use]
    pub fn with_stamps(mut self, stamps: StampType) -> Self {
        self.leaves.extend(stamp_leaf(&self.leaves).is_none().then(|| stamps.leaf()));
        self
    }

    /// Describes a store whose columns are only known at run time, by its leaves. A ragged leaf with several dimensions that differ is
    /// followed by the leaf of its sizes, as in [`ColumnType::leaves`].
    ///
    /// ```
    /// use tcx_store::{DType, Identity, KeyType, Leaf, LeafKind, Spec};
    ///
    /// let kind = LeafKind::Dense { dtype: DType::F32, shape: vec![512] };
    /// let leaf = Leaf { name: "pooled".to_owned(), kind, optional: false };
    /// let spec = Spec::of_leaves("clip_v1", KeyType::Text, vec![leaf], Identity::default(), Vec::new())?;
    /// assert_eq!(spec.leaves()[0].described(), "f32 [512]");
    /// # Ok::<(), tcx_store::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_leaves(
        module_id: &str,
        key_type: KeyType,
        leaves: Vec<Leaf>,
        identity: Identity,
        provenance: Vec<(String, String)>,
    ) -> Result<Self> {
        check_module_id(module_id)?;
        check_leaves(&leaves[..stamp_leaf(&leaves).unwrap_or(leaves.len())])?;
        Ok(Self { module_id: module_id.to_owned(), key_type, leaves, identity, provenance })
    }

    /// The id of the module.
    pub fn module_id(&self) -> &str {
        &self.module_id
    }

    /// What the keys are.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// The columns, in order.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// What the module is, as readable entries.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the rows come from, for people to read.
    pub fn provenance(&self) -> &[(String, String)] {
        &self.provenance
    }
}

fn check_leaves(leaves: &[Leaf]) -> Result<()> {
    let mut names = HashSet::new();
    for Leaf { name, kind, .. } in leaves {
        if name.starts_with("__") {
            return Err(Error::of_kind(
                ErrorKind::InvalidColumns,
                format!("column `{name}`: names that begin with `__` are reserved; rename the field"),
            ));
        }
        if !names.insert(name) {
            return Err(Error::of_kind(
                ErrorKind::InvalidColumns,
                format!("two columns have the name `{name}`; rename one of the fields"),
            ));
        }
        if kind.dimensions() > MAX_DIMENSIONS {
            return Err(Error::of_kind(
                ErrorKind::InvalidColumns,
                format!(
                    "column `{name}`: a row has {} dimensions: expected at most {MAX_DIMENSIONS}; reshape the tensor",
                    kind.dimensions()
                ),
            ));
        }
        if kind.unit() == 0 {
            return Err(Error::of_kind(
                ErrorKind::InvalidColumns,
                format!("column `{name}`: a row of {kind} is empty; remove the field"),
            ));
        }
        if kind.elements().is_some_and(|elements| i32::try_from(elements).is_err()) {
            return Err(Error::of_kind(
                ErrorKind::InvalidColumns,
                format!("column `{name}`: a row of {kind} is too large; split it into several fields"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, LeafKind, Options, Store};

    fn of_dimensions(dimensions: usize) -> Result<Spec> {
        let kind = LeafKind::Dense { dtype: DType::U8, shape: vec![1; dimensions] };
        let leaves = vec![Leaf { name: "value".to_owned(), kind, optional: false }];
        Spec::of_leaves("m_v1", KeyType::Int, leaves, Identity::default(), Vec::new())
    }

    #[test]
    fn rows_of_more_dimensions_than_a_folder_can_describe_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let store = Store::open(dir.path(), of_dimensions(255).unwrap(), &Options::default()).unwrap();
            store.invalidate_all().unwrap();
        }
        let refused = of_dimensions(256).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidColumns);
        assert!(
            refused.to_string().contains("column `value`: a row has 256 dimensions: expected at most 255"),
            "{refused}"
        );
    }
}
