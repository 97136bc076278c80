//! Running a module on what is missing, and the checks that it is what it promises: frozen, deterministic,
//! and the same for a sample whatever else is in the batch.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tcx_store::{Column, Leaf, Lookup};

use crate::cache::alone::{Alone, Refused};
use crate::cache::claims::Entered;
use crate::cache::mode::Rows;
use crate::cached::Cached;
use crate::cached::checks::compare::{Broken, Tolerance, first_difference};
use crate::cached::checks::passed::{Level, Record};
use crate::cached::checks::tipped::Tipped;
use crate::cached::checks::{Checks, Computed, Recheck};
use crate::cached::holder::{Built, InUse};
use crate::cached::panicked::Running;
use crate::cached::turns::Turn;
use crate::ids::name::name;
use crate::module::batch::Batch;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::inputs::Selected;
use crate::output::{CacheableOutput, ColumnWriter, Refuses};
use crate::tensor::{no_gradients, with_gradients};
use crate::{Error, Result};

/// What a module has shown of itself.
pub(crate) struct Shown {
    /// Whether each field of float tensors has shown one, and none of them gradients.
    without_gradients: AtomicBool,
    /// The promise that the module is known to break.
    broken: OnceLock<Broken>,
    /// Held while a batch is checked, which may compute samples again: the next batch is checked after that.
    checked: Alone<Checked>,
}

struct Checked {
    checks: Checks,
    record: Option<Record>,
    /// Whether the record was read.
    is_read: bool,
}

impl Shown {
    pub(crate) fn new(record: Option<Record>) -> Self {
        let checked = Checked { checks: Checks::new(), record, is_read: false };
        let (without_gradients, broken) = (AtomicBool::new(false), OnceLock::new());
        Self { without_gradients, broken, checked: Alone::new(checked) }
    }

    fn refuse<M: CachedModule>(&self) -> Result<()> {
        self.broken.get().map_or(Ok(()), |broken| Err(broken.error(M::ID)))
    }
}

impl<M: CachedModule> Cached<M> {
    /// Waits until this thread may compute, with those of `samples` that no other thread computes: see
    /// [`Turns::take`](crate::cached::turns::Turns::take).
    ///
    /// # Errors
    ///
    /// Returns an error if this thread is computing with the module, because it could wait for itself, and in a forked process,
    /// whose parent may have been computing with it at the fork.
    fn turn(&self, samples: &[u64]) -> Result<Option<Turn<'_>>> {
        self.turns.take(samples).map_err(|refused| self.refused(refused))
    }

    pub(super) fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::Forked => self.shared.forked(),
            Refused::Held => module_error::<M>(
                "`forward` (or the closure that builds the module) used its own handle to compute samples: it would wait for itself forever",
                "compute there without the handle, or use another module",
            ),
        }
    }

    /// The module, for a thread that has a turn.
    fn in_use(&self, _: &Turn<'_>) -> Result<InUse<'_, M>> {
        InUse::of(self.holder.lock().map_err(|refused| self.refused(refused))?)
    }

    /// Drops a module that can be built again, once no thread computes with it; one that this thread is computing with stays, and so
    /// does that of a process that this one was forked from.
    pub(crate) fn release_module(&self) -> bool {
        let release = || self.holder.lock().is_ok_and(|mut holder| holder.release());
        self.turns.without(release).is_ok_and(|released| released)
    }

    /// Computes the rows that are still missing, if any, and stores them in `store`: all, or those at the positions `only`, which
    /// ascend. `inputs` takes their positions; it is called again for rows that another thread was computing, and has not stored.
    /// Returns how many rows this thread has computed.
    pub(crate) fn complete<'a>(
        &self,
        store: &Rows,
        rows: &mut Lookup,
        only: Option<&[usize]>,
        mut inputs: impl FnMut(&[usize]) -> Result<Selected<'a, M::Input>>,
    ) -> Result<usize>
    where
        M::Input: 'a,
    {
        let mut computed = 0;
        loop {
            let turn = self.turn(&self.samples(rows, only))?;
            // Another thread may have computed them meanwhile.
            self.rows.lookup_again(rows)?;
            let mut positions = missing(rows, only);
            let count = positions.len();
            match &turn {
                None => positions.clear(),
                Some(turn) if turn.is_partial() => {
                    positions.retain(|&position| turn.has(rows.keys().digest(position)));
                }
                Some(_) => {}
            }
            if let Some(turn) = turn.as_ref().filter(|_| !positions.is_empty()) {
                self.compute(turn, store, rows, &positions, &mut inputs)?;
            }
            computed += positions.len();
            if positions.len() == count {
                return Ok(computed);
            }
        }
    }

    /// The samples that no other thread may compute in the meantime. They matter if several threads compute at once, and find what
    /// the others have computed.
    fn samples(&self, rows: &Lookup, only: Option<&[usize]>) -> Vec<u64> {
        if self.turns.limit() == 1 || self.rows.claims().is_none() {
            return Vec::new();
        }
        missing(rows, only).into_iter().map(|position| rows.keys().digest(position)).collect()
    }

    /// Computes the rows at these positions, and stores them.
    fn compute<'a>(
        &self,
        turn: &Turn<'_>,
        store: &Rows,
        rows: &mut Lookup,
        positions: &[usize],
        inputs: impl FnOnce(&[usize]) -> Result<Selected<'a, M::Input>>,
    ) -> Result<()>
    where
        M::Input: 'a,
    {
        let (span, start) =
            (tracing::debug_span!("compute", module = M::ID, rows = positions.len()), Instant::now());
        let named = |row: usize| name(rows.keys(), positions[row]);
        let (columns, module) = span.in_scope(|| {
            let inputs = inputs(positions).map_err(in_module::<M>)?;
            let _computing = Entered::computing();
            let module = self.in_use(turn)?;
            let columns =
                self.columns(module.built()?, &inputs, positions.len(), &named, Some(&self.recheck))?;
            Ok::<_, Error>((columns, module))
        })?;
        self.rows.computed(positions.len(), start);
        let hits = || self.rows.stats().hits;
        self.computing.computed(M::ID, positions.len(), self.shared.shown(), hits, Instant::now());
        let leaves = <M::Output as CacheableOutput>::COLUMN.leaves();
        self.finite.check(M::ID, &leaves, &columns, rows.keys(), positions)?;
        let attestation = module.built()?.attestation(&self.sources)?;
        let _span = tracing::debug_span!("enqueue", module = M::ID, rows = positions.len()).entered();
        store.complete(rows, positions, columns, attestation.as_ref()).map(drop)
    }

    /// The columns of `rows` samples, which are computed for no row.
    pub(crate) fn compute_only(
        &self,
        inputs: &M::Input,
        rows: usize,
        named: &dyn Fn(usize) -> String,
    ) -> Result<Vec<Column>> {
        loop {
            // Without samples, there is none to wait for.
            let Some(turn) = self.turn(&[])? else { continue };
            let _computing = Entered::computing();
            let module = self.in_use(&turn)?;
            return self.columns(module.built()?, inputs, rows, named, None);
        }
    }

    /// The columns of `rows` samples; `named` names one of them for a message. With `recheck`, a part of them may be computed
    /// again.
    ///
    /// # Errors
    ///
    /// Returns the errors of the module, and an error if the module is known to break a promise.
    fn columns(
        &self,
        built: &Built<M>,
        inputs: &M::Input,
        rows: usize,
        named: &dyn Fn(usize) -> String,
        recheck: Option<&Recheck>,
    ) -> Result<Vec<Column>> {
        let shown = &self.shown;
        shown.refuse::<M>()?;
        let columns = if shown.without_gradients.load(Ordering::Relaxed) {
            let _no_grad = no_gradients();
            run(built, inputs, ColumnWriter::refusing(Refuses::Unswitched, rows), named)?
        } else {
            // With gradients on, a trainable tensor shows itself in what it takes part in, in a closure too.
            let writer = ColumnWriter::refusing(Refuses::Gradients, rows);
            let written = with_gradients(|| run(built, inputs, writer, named))?;
            if written.has_seen_all() {
                shown.without_gradients.store(true, Ordering::Relaxed);
            }
            written
        };
        let columns = columns.finish();
        let _no_grad = no_gradients();
        let leaves = M::Output::COLUMN.leaves();
        self.check(&Ran { built, inputs, columns: &columns, rows, leaves: &leaves, named }, recheck)?;
        Ok(columns)
    }

    /// Checks a batch that was computed, after those that other threads have computed before.
    fn check(&self, batch: &Ran<'_, M>, recheck: Option<&Recheck>) -> Result<()> {
        let shown = &self.shown;
        let mut checked = shown.checked.lock().map_err(|refused| self.refused(refused))?;
        // A batch that another thread computed at the same time may have broken a promise.
        shown.refuse::<M>()?;
        let Checked { checks, record, is_read } = &mut *checked;
        if !*is_read {
            // Gradients are looked for in every process: that costs nothing.
            let device = batch.built.device.as_ref();
            checks.trust(record.as_mut().map_or(Level::Nothing, |record| record.read(device)));
            *is_read = true;
        }
        let broken = checks.look_at(batch, recheck)?;
        if let Some(record) = record {
            match broken {
                None => record.write(checks.shown()),
                Some(_) => record.remove(),
            }
        }
        if let Some(broken) = broken {
            // It is the first: the lock is held.
            let _ = shown.broken.set(broken);
        }
        shown.refuse::<M>()
    }
}

/// The positions of what is missing, each key once: all, or those that are in `only`.
fn missing(rows: &Lookup, only: Option<&[usize]>) -> Vec<usize> {
    let mut positions = rows.distinct_missing_positions();
    if let Some(only) = only {
        positions.retain(|position| only.binary_search(position).is_ok());
    }
    positions
}

fn run<M: CachedModule>(
    Built { module, watch, .. }: &Built<M>,
    inputs: &M::Input,
    mut writer: ColumnWriter,
    named: &dyn Fn(usize) -> String,
) -> Result<ColumnWriter> {
    watch.check().map_err(in_module::<M>)?;
    let running = Running::new(M::ID, writer.rows(), named);
    let output = Extractor::forward(module, inputs);
    let output = output.map_err(|error| in_module::<M>(error.returned_by(|| "`forward` failed")))?;
    drop(running);
    watch.check_after().map_err(in_module::<M>)?;
    output.write(&mut writer).map_err(in_module::<M>)?;
    Ok(writer)
}

/// A batch that the module was run on.
struct Ran<'a, M: CachedModule> {
    built: &'a Built<M>,
    inputs: &'a M::Input,
    columns: &'a [Column],
    rows: usize,
    leaves: &'a [Leaf],
    named: &'a dyn Fn(usize) -> String,
}

impl<M: CachedModule> Computed for Ran<'_, M> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn again(&self) -> Result<Vec<Column>> {
        run(self.built, self.inputs, ColumnWriter::new(self.rows), self.named).map(ColumnWriter::finish)
    }

    fn some(&self, positions: &[usize]) -> Result<Vec<Column>> {
        let inputs = self.inputs.select(positions).map_err(in_module::<M>)?;
        let named = |row: usize| (self.named)(positions[row]);
        let some = run(self.built, &inputs, ColumnWriter::new(positions.len()), &named);
        some.map(ColumnWriter::finish).map_err(|error| alone_failed::<M>(self.rows, positions.len(), error))
    }

    fn difference(&self, positions: &[usize], other: &[Column], tolerance: Tolerance) -> Option<Broken> {
        let pairs = positions.iter().enumerate().map(|(row, &position)| (position, row));
        let (position, difference) =
            first_difference(self.leaves, self.rows, self.columns, other, pairs, tolerance)?;
        Some(Broken::new(tolerance, &difference, &(self.named)(position)))
    }

    fn tipped(&self, positions: &[usize], other: &[Column]) -> Tipped {
        let pairs = positions.iter().enumerate().map(|(row, &position)| (position, row));
        Tipped::of(self.leaves, self.columns, other, pairs, self.named)
    }

    fn between(&self, positions: &[usize], one: &[Column], other: &[Column]) -> Option<Broken> {
        let pairs = (0..positions.len()).map(|row| (row, row));
        let rows = positions.len();
        let (row, difference) = first_difference(self.leaves, rows, one, other, pairs, Tolerance::Repeated)?;
        Some(Broken::new(Tolerance::Repeated, &difference, &(self.named)(positions[row])))
    }
}

fn alone_failed<M: CachedModule>(rows: usize, some: usize, error: Error) -> Error {
    module_error::<M>(
        format!("`forward` computed a batch of {rows} samples but failed on {some} of them in another batch"),
        "make `forward` accept any number of samples: tcx computes only the missing ones",
    )
    .with_source(error)
}

pub(crate) fn in_module<M: CachedModule>(error: Error) -> Error {
    error.in_module(M::ID)
}

pub(crate) fn module_error<M: CachedModule>(message: impl Into<Box<str>>, remedy: &'static str) -> Error {
    Error::module(M::ID, message, remedy)
}
