//! Looking rows up, and making an output of them.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use tcx_store::{Keys, Lookup, Process};

use crate::Result;
use crate::cache::mode::Rows;
use crate::output::{CacheableOutput, ColumnReader};
use crate::tensor::{DenseLeaf, Device, NewRows, no_gradients};

/// Gathers outputs of one type. Which tensors they have is known once one was gathered; from then on these are made before rows
/// are looked up, so that each row is copied while the next ones are looked for.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// The numbers of the leaves that are read; `None` means all.
    leaves: Option<Arc<[usize]>>,
    /// The leaves of which an output has tensors.
    tensors: OnceLock<Vec<DenseLeaf>>,
    process: Process,
}

/// Rows that were looked up, and the memory of tensors into which some of them were copied.
#[derive(Debug)]
pub(crate) struct Found {
    rows: Lookup,
    tensors: Vec<NewRows>,
}

impl Gather {
    /// Reads only these leaves, as those of another output.
    pub(crate) fn of(leaves: Arc<[usize]>) -> Self {
        Self { leaves: Some(leaves), ..Self::default() }
    }

    /// Looks up the rows of these keys.
    pub(crate) fn look_up(&self, rows: &Rows, keys: Keys) -> Result<Found> {
        let known = self.tensors.get().filter(|_| rows.copies_what_it_finds()).into_iter().flatten();
        // Memory that cannot be allocated may not be needed: if it is, the error comes later.
        let tensors = known.map(|of| NewRows::new(of, keys.len())).collect::<Result<Vec<_>>>();
        let mut tensors = tensors.unwrap_or_default();
        let rows =
            NewRows::lend(&mut tensors, |memory| rows.lookup_into(keys, self.leaves.as_ref(), memory))?;
        Ok(Found { rows, tensors })
    }

    /// The output that is made of the leaves of the rows of an `O`.
    pub(crate) fn read<O: CacheableOutput, P: CacheableOutput>(
        &self,
        found: Found,
        device: &Device,
    ) -> Result<P> {
        let _no_grad = no_gradients();
        let mut reader = ColumnReader::new::<O>(&found.rows, device);
        reader.use_tensors(found.tensors);
        reader.read_leaves(self.leaves.as_deref());
        let output = P::read(&mut reader)?;
        // In a forked process it may be half done by a thread that is not there: it is not waited for.
        if self.process.is_current() {
            self.tensors.get_or_init(|| reader.into_asked());
        }
        Ok(output)
    }
}

/// Rows none of which were copied yet.
impl From<Lookup> for Found {
    fn from(rows: Lookup) -> Self {
        Self { rows, tensors: Vec::new() }
    }
}

impl Deref for Found {
    type Target = Lookup;

    fn deref(&self) -> &Lookup {
        &self.rows
    }
}

impl DerefMut for Found {
    fn deref_mut(&mut self) -> &mut Lookup {
        &mut self.rows
    }
}
