//! Running a module on what is missing, and the checks that it is what it promises: frozen, deterministic,
//! and the same for a sample whatever else is in the batch.

use std::sync::Arc;

use tcx_store::{Attestation, Column, Leaf};

use crate::cache::claims::Entered;
use crate::cached::checks::compare::{Broken, Tolerance, first_difference};
use crate::cached::checks::passed::{Level, Record};
use crate::cached::checks::tipped::Tipped;
use crate::cached::checks::{Checks, Computed, Recheck};
use crate::cached::panicked::Running;
use crate::identity::Identity;
use crate::identity::sources::Sources;
use crate::identity::watch::WeightWatch;
use crate::module::batch::Batch;
use crate::module::extractor::{CachedModule, Extractor};
use crate::output::{CacheableOutput, ColumnWriter};
use crate::tensor::{no_gradients, with_gradients};
use crate::{Error, Result};

/// A module and what is known of it.
pub(crate) struct Compute<M> {
    /// Not there before a lazy module is built, and after it was released.
    module: Option<(M, WeightWatch)>,
    lazy: Option<Lazy<M>>,
    /// Whether a first batch has shown no gradients.
    without_gradients: bool,
    checks: Checks,
    record: Option<Record>,
    sources: Arc<Sources>,
}

/// Builds a module.
type Build<M> = Box<dyn FnMut() -> Result<M> + Send>;

/// A module that is built when it is needed, and has to be of this identity.
struct Lazy<M> {
    announced: Identity,
    build: Build<M>,
}

impl<M: CachedModule> Compute<M> {
    pub(crate) fn new(module: M, identity: Identity, sources: Arc<Sources>, record: Option<Record>) -> Self {
        Self {
            module: Some((module, identity.into_watch())),
            lazy: None,
            without_gradients: false,
            checks: Checks::new(),
            record,
            sources,
        }
    }

    pub(crate) fn lazy(
        announced: Identity,
        build: Build<M>,
        sources: Arc<Sources>,
        record: Option<Record>,
    ) -> Self {
        let lazy = Some(Lazy { announced, build });
        Self { module: None, lazy, without_gradients: false, checks: Checks::new(), record, sources }
    }

    /// Builds the module if it is not there.
    fn build(&mut self) -> Result<()> {
        let (None, Some(Lazy { announced, build })) = (&self.module, &mut self.lazy) else { return Ok(()) };
        let module = build();
        let module =
            module.map_err(|error| in_module::<M>(error.returned_by(|| "building the module failed")))?;
        let identity = Identity::of(&module);
        if identity.entries() != announced.entries() {
            return Err(module_error::<M>(
                format!(
                    "the built module has another identity than the one passed to `lazy_module`; passed:\n{announced}\nbuilt:\n{identity}"
                ),
                "add every field of the built module to that identity, in order",
            ));
        }
        self.module = Some((module, identity.into_watch()));
        Ok(())
    }

    /// Drops a module that can be built again.
    pub(crate) fn release(&mut self) -> bool {
        self.lazy.is_some() && self.module.take().is_some()
    }

    /// The weights behind the rows.
    pub(crate) fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }

    /// What is asked before rows that were just computed become durable; nothing if no weights are behind them.
    ///
    /// # Errors
    ///
    /// Returns an error that names a weight of a module before this one, if that weight is known to have changed.
    pub(crate) fn attestation(&self) -> Result<Option<Arc<Attestation>>> {
        self.sources.attestation(self.module.as_ref().and_then(|(_, watch)| watch.attestation(M::ID)))
    }

    /// The columns of `rows` samples; `named` names one of them for a message. With `recheck`, a part of them may be computed
    /// again.
    ///
    /// # Errors
    ///
    /// Returns the errors of the module, and an error if the module is known to break a promise.
    pub(crate) fn columns(
        &mut self,
        inputs: &M::Input,
        rows: usize,
        named: &dyn Fn(usize) -> String,
        recheck: Option<&Recheck>,
    ) -> Result<Vec<Column>> {
        let _computing = Entered::computing();
        self.build()?;
        let Some(module) = &self.module else {
            return Err(module_error::<M>("has not been built", "ask again"));
        };
        let refuse = |checks: &Checks| checks.broken().map_or(Ok(()), |broken| Err(broken.error(M::ID)));
        refuse(&self.checks)?;
        let columns = if self.without_gradients {
            let _no_grad = no_gradients();
            run(module, inputs, ColumnWriter::new(rows), named)?
        } else {
            // With gradients on, a trainable tensor shows itself in what it takes part in, in a closure too.
            with_gradients(|| run(module, inputs, ColumnWriter::refusing_gradients(rows), named))?
        };
        if !self.without_gradients {
            // Gradients are looked for in every process: that costs nothing.
            self.checks.trust(self.record.as_mut().map_or(Level::Nothing, Record::read));
            self.without_gradients = true;
        }
        let _no_grad = no_gradients();
        let leaves = M::Output::COLUMN.leaves();
        let batch = Ran { module, inputs, columns: &columns, rows, leaves: &leaves, named };
        self.checks.look_at(&batch, recheck)?;
        if let Some(record) = &mut self.record {
            match self.checks.broken() {
                None => record.write(self.checks.shown()),
                Some(_) => record.remove(),
            }
        }
        refuse(&self.checks)?;
        Ok(columns)
    }
}

fn run<M: CachedModule>(
    (module, watch): &(M, WeightWatch),
    inputs: &M::Input,
    mut writer: ColumnWriter,
    named: &dyn Fn(usize) -> String,
) -> Result<Vec<Column>> {
    watch.check().map_err(in_module::<M>)?;
    let running = Running::new(M::ID, writer.rows(), named);
    let output = Extractor::forward(module, inputs);
    let output = output.map_err(|error| in_module::<M>(error.returned_by(|| "`forward` failed")))?;
    drop(running);
    watch.check_after().map_err(in_module::<M>)?;
    output.write(&mut writer).map_err(in_module::<M>)?;
    Ok(writer.finish())
}

/// A batch that the module was run on.
struct Ran<'a, M: CachedModule> {
    module: &'a (M, WeightWatch),
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
        run(self.module, self.inputs, ColumnWriter::new(self.rows), self.named)
    }

    fn some(&self, positions: &[usize]) -> Result<Vec<Column>> {
        let inputs = self.inputs.select(positions).map_err(in_module::<M>)?;
        let named = |row: usize| (self.named)(positions[row]);
        let some = run(self.module, &inputs, ColumnWriter::new(positions.len()), &named);
        some.map_err(|error| alone_failed::<M>(self.rows, positions.len(), error))
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

fn in_module<M: CachedModule>(error: Error) -> Error {
    error.in_module(M::ID)
}

fn module_error<M: CachedModule>(message: impl Into<Box<str>>, remedy: &'static str) -> Error {
    Error::module(M::ID, message, remedy)
}
