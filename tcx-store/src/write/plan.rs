//! How a generation is to be written: the rows of each recompute session by themselves, with the tombstone that commits them.

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::fate::{Fate, doomed, recomputes};
use crate::changes::{Attempt, Doomed, KnownChanges, Needs};
use crate::computed::RowBatch;
use crate::computed::recompute::RecomputeSession;
use crate::sys::bytes::Random;
use crate::write::decide::Decided;

/// The rows of each batch that are to be written.
pub(crate) type Rows = Vec<Vec<Range<usize>>>;

/// What is to be written.
pub(crate) struct Plan {
    instance: Random,
    /// The newest change.
    newest: u64,
    /// The rows that replace none.
    pub(crate) others: Rows,
    /// The rows that do. Their tombstones have the numbers after the newest, in this order: no other change may come between.
    pub(crate) replacing: Vec<Replacing>,
}

/// The rows that a recompute session has computed, and the tombstone that is created when they are written: it kills the rows that they
/// replace and makes them count, at once.
pub(crate) struct Replacing {
    pub(crate) recompute: Arc<RecomputeSession>,
    pub(crate) rows: Rows,
    pub(crate) doomed: Doomed,
    pub(crate) attempt: Arc<Attempt>,
    /// The number of the tombstone.
    number: u64,
}

impl Replacing {
    /// What the segments of the rows need to count.
    pub(crate) fn needs(&self) -> Needs {
        Needs { base: self.number, commit: Some(self.attempt.nonce) }
    }
}

impl Plan {
    pub(crate) fn new(decided: &Decided<'_>, changes: &KnownChanges) -> Self {
        let (fates, batches) = (decided.fates(), decided.batches());
        let newest = changes.newest().unwrap_or(0);
        let replacing = recomputes(fates, batches).into_iter().filter_map(|recompute| {
            let doomed = doomed(fates, batches, &recompute)?;
            let (rows, attempt) = (rows_of(fates, batches, Some(&recompute)), Attempt::new());
            Some(Replacing { recompute, rows, doomed, attempt, number: 0 })
        });
        let numbered =
            replacing.zip(1..).map(|(own, at)| Replacing { number: newest.saturating_add(at), ..own });
        let replacing = numbered.collect();
        Self { instance: decided.identity.instance, newest, others: rows_of(fates, batches, None), replacing }
    }

    /// What the segments of the other rows need.
    pub(crate) fn needs(&self) -> Needs {
        Needs { base: self.newest, commit: None }
    }

    /// Whether the rows that replace none are still those that are to be written.
    pub(crate) fn holds_for_others(&self, fates: &[Fate], batches: &[Arc<RowBatch>]) -> bool {
        self.others == rows_of(fates, batches, None)
    }

    /// Whether it is still right: nothing has changed since but what makes no difference to it.
    pub(crate) fn is(&self, now: &Self) -> bool {
        let same = |(own, now): (&Replacing, &Replacing)| {
            Arc::ptr_eq(&own.recompute, &now.recompute) && own.rows == now.rows
        };
        (self.instance, self.newest, &self.others) == (now.instance, now.newest, &now.others)
            && self.replacing.len() == now.replacing.len()
            && self.replacing.iter().zip(&now.replacing).all(same)
    }
}

/// The rows of each batch that are to be written, of this session or of none.
fn rows_of(fates: &[Fate], batches: &[Arc<RowBatch>], session: Option<&Arc<RecomputeSession>>) -> Rows {
    let is_of = |own: Option<&Arc<RecomputeSession>>| own.map(Arc::as_ptr) == session.map(Arc::as_ptr);
    let rows = batches.iter().zip(fates).map(|(batch, fate)| {
        if is_of(batch.recompute.as_ref()) { fate.unsealed(batch.rows()) } else { Vec::new() }
    });
    rows.collect()
}
