//! The stores that a cache has opened: it answers for every row that was accepted through it.

use std::sync::Arc;

use tcx_store::{Losses, Store, Trouble, notice};

use crate::cache::alone::{Alone, Held};
use crate::cache::progress::Shown;
use crate::cache::summary;
use crate::{Error, Result};

/// How far rows go: [`Store::flush_for`] or [`Store::flush_local_for`].
type Flush = fn(&Store, &Losses) -> tcx_store::Result<()>;

/// The stores of a cache, in the order they were opened. Two of one folder are different stores: where a folder was removed or
/// refused, the next open gets a new one, while handles of the old one may still have rows in its buffer.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    open: Alone<Vec<Arc<Store>>>,
    /// Rows of any handle that are lost.
    losses: Arc<Losses>,
}

impl Stores {
    pub(crate) fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// From now on, the cache answers for this one too.
    ///
    /// # Errors
    ///
    /// Returns an error if the stores belong to the process that this one was forked from.
    pub(crate) fn add(&self, store: &Arc<Store>) -> Result<()> {
        let mut open = self.lock()?;
        if !open.iter().any(|own| Arc::ptr_eq(own, store)) {
            open.push(store.clone());
        }
        Ok(())
    }

    /// Waits until every row is durable, as `flush` has it.
    ///
    /// # Errors
    ///
    /// Returns an error if rows cannot be written, if rows were lost since the last call, or if the stores belong to the
    /// process that this one was forked from. Of several errors, it returns the first and logs the others.
    pub(crate) fn flush(&self, flush: Flush) -> Result<()> {
        let (_, mut errors) = self.flush_each(flush)?;
        errors.extend(self.losses.take().err());
        self.let_go_of_replaced()?;
        first_of(errors)
    }

    /// As [`flush`](Self::flush); then lets go of the stores whose rows are durable, and says what each has done. The others
    /// stay, so that closing again tries again; what is lost is lost for every close.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub(crate) fn close(&self, shown: Shown) -> Result<()> {
        let (failed, mut errors) = self.flush_each(Store::flush_for)?;
        errors.extend(self.losses.check().err());
        // Handles of modules may be around for long.
        self.lock()?.iter().for_each(|store| store.end_session());
        let is_done = |store: &Arc<Store>| !failed.iter().any(|own| Arc::ptr_eq(own, store));
        let done: Vec<_> = self.lock()?.extract_if(.., |store| is_done(store)).collect();
        for store in &done {
            summary::report(store, shown);
        }
        first_of(errors)
    }

    /// Says what each store has done that was not closed; nothing of those of the process that this one was forked from. Rows that
    /// wait are written first, as they are when the last handle of a store is dropped, so that the line counts them.
    pub(crate) fn sum_up(&self, shown: Shown) {
        let Ok(stores) = self.lock().map(|mut open| std::mem::take(&mut *open)) else { return };
        for store in &stores {
            if store.stats().buffered_rows > 0 {
                // The store reports the rows that it cannot write when its last handle is dropped.
                let _ = store.flush_for(&Losses::new());
            }
            summary::report(store, shown);
        }
    }

    /// The stores that have rows which are not durable, and what kept them from the disk.
    fn flush_each(&self, flush: Flush) -> Result<(Vec<Arc<Store>>, Vec<tcx_store::Error>)> {
        let stores = self.lock()?.clone();
        let (mut failed, mut errors) = (Vec::new(), Vec::new());
        for (at, store) in stores.iter().enumerate() {
            // What is lost of the handles' rows is counted in `losses`.
            let Err(error) = flush(store, &Losses::new()) else { continue };
            // A store that was refused drops its rows, which are among the losses. Its error says nothing of the one that
            // took its place.
            if is_replaced(&stores, at) && store.stats().buffered_rows == 0 {
                continue;
            }
            failed.push(store.clone());
            errors.push(error);
        }
        Ok((failed, errors))
    }

    /// Lets go of stores that others have taken the place of, once they have neither rows nor handles.
    fn let_go_of_replaced(&self) -> Result<()> {
        let mut open = self.lock()?;
        let is_over = |at: usize| {
            let is_alone = Arc::strong_count(&open[at]) == 1;
            is_alone && is_replaced(&open, at) && open[at].stats().buffered_rows == 0
        };
        let over: Vec<usize> = (0..open.len()).filter(|&at| is_over(at)).collect();
        let over: Vec<_> = over.into_iter().rev().map(|at| open.remove(at)).collect();
        // Their writers are waited for.
        drop(open);
        drop(over);
        Ok(())
    }

    fn lock(&self) -> Result<Held<'_, Vec<Arc<Store>>>> {
        // No thread asks for the lock while it holds it: only a fork is refused.
        self.open.lock().map_err(|_| Error::forked("the cache"))
    }
}

fn is_replaced(stores: &[Arc<Store>], at: usize) -> bool {
    stores[at + 1..].iter().any(|newer| newer.path() == stores[at].path())
}

fn first_of(errors: Vec<tcx_store::Error>) -> Result<()> {
    let mut errors = errors.into_iter();
    let first = errors.next();
    for error in errors {
        tracing::error!("{error:#}");
        notice(Trouble::Lost, format_args!("{error:#}"));
    }
    first.map_or(Ok(()), |error| Err(error.into()))
}
