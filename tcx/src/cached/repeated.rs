//! An id that is twice in a batch, with different inputs: one of them would get the row of the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tcx_store::{Keys, Trouble, notice};

use crate::ids::name::name;
use crate::module::batch::Batch;
use crate::{Error, Result};

/// Counts such samples, and refuses them if it is asked to.
#[derive(Debug)]
pub(crate) struct RepeatWatch {
    refuses: bool,
    rows: AtomicU64,
}

impl RepeatWatch {
    pub(crate) fn new(refuses: bool) -> Self {
        Self { refuses, rows: AtomicU64::new(0) }
    }

    /// The samples that had the id of an earlier one and another input, refused ones too.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Compares the inputs of the ids that are computed from the sample at one of `positions` with their other samples.
    ///
    /// # Errors
    ///
    /// Returns an error that names an id whose inputs differ, if such ids are refused.
    pub(crate) fn check(
        &self,
        module: &str,
        keys: &Keys,
        positions: &[usize],
        inputs: &impl Batch,
    ) -> Result<()> {
        let computed: HashMap<&[u8], usize> = positions.iter().map(|&at| (keys.key(at), at)).collect();
        let first = |position| computed.get(keys.key(position)).copied();
        let mut found = (0..keys.len()).filter_map(|position| {
            let first = first(position).filter(|&first| first != position)?;
            (inputs.is_same(first, position) == Some(false)).then_some((first, position))
        });
        let Some((first, second)) = found.next() else { return Ok(()) };
        let rows = 1 + found.count() as u64;
        let message = format!(
            "the id {} is at positions {first} and {second} of the batch, with different inputs: one row cannot hold both",
            name(keys, first)
        );
        let remedy = "give each sample an id of its own, such as the whole path instead of the file name";
        if self.rows.fetch_add(rows, Ordering::Relaxed) == 0 && !self.refuses {
            tracing::warn!(module, "{message}; {remedy}");
            notice(Trouble::Repeated, format_args!("module `{module}`: {message}; {remedy}"));
        }
        if self.refuses { Err(Error::batch(message).in_module(module).with_remedy(remedy)) } else { Ok(()) }
    }
}
