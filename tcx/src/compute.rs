//! Running a module on what is missing, and the checks that it is what it promises: frozen, deterministic,
//! and the same for a sample whatever else is in the batch.

use tcx_store::Column;

use crate::batch::Batch;
use crate::compare::{Tolerance, difference};
use crate::extractor::{CachedModule, Extractor};
use crate::identity::{Identity, WeightWatch};
use crate::output::{CacheableOutput, ColumnWriter};
use crate::{Error, Result};

/// A module and what is known of it.
pub(crate) struct Compute<M> {
    module: Source<M>,
    /// Whether a first batch has shown neither gradients nor randomness.
    deterministic: bool,
    /// Whether a batch of several samples has shown that a sample's output does not depend on the others.
    independent: bool,
}

/// Builds a module.
type Build<M> = Box<dyn FnMut() -> Result<M> + Send>;

/// Where the module comes from.
enum Source<M> {
    Built(M, WeightWatch),
    /// It is built when it is needed, and has to be of this identity.
    Lazy(Identity, Build<M>),
}

impl<M: CachedModule> Compute<M> {
    pub(crate) fn new(module: M, watch: WeightWatch) -> Self {
        Self { module: Source::Built(module, watch), deterministic: false, independent: false }
    }

    pub(crate) fn lazy(identity: Identity, build: Build<M>) -> Self {
        Self { module: Source::Lazy(identity, build), deterministic: false, independent: false }
    }

    /// Builds the module if it has not been.
    fn build(&mut self) -> Result<()> {
        let Source::Lazy(announced, build) = &mut self.module else { return Ok(()) };
        let module = build()?;
        let identity = Identity::of(&module);
        if identity.entries() != announced.entries() {
            return Err(module_error::<M>(format!(
                "was built with another identity than was announced; announced:\n{announced}\nbuilt:\n{identity}"
            )));
        }
        self.module = Source::Built(module, identity.into_watch());
        Ok(())
    }

    /// The columns of `rows` samples.
    pub(crate) fn columns(&mut self, inputs: &M::Input, rows: usize) -> Result<Vec<Column>> {
        self.build()?;
        if self.deterministic && (self.independent || rows == 1) {
            let _no_grad = tch::no_grad_guard();
            return self.run(inputs, ColumnWriter::new(rows));
        }
        let columns = if self.deterministic {
            let _no_grad = tch::no_grad_guard();
            self.run(inputs, ColumnWriter::new(rows))?
        } else {
            // With gradients on, a trainable tensor shows itself in what it takes part in, in a closure too.
            with_grad(|| self.run(inputs, ColumnWriter::refusing_gradients(rows)))?
        };
        let _no_grad = tch::no_grad_guard();
        let single = inputs.select(&[0])?;
        let alone = self.run(&single, ColumnWriter::new(1)).map_err(|error| alone_failed::<M>(&error))?;
        if !self.deterministic {
            let again = self.run(&single, ColumnWriter::new(1))?;
            compare::<M>(&alone, &again, Tolerance::Repeated)?;
            self.deterministic = true;
        }
        compare::<M>(&columns, &alone, Tolerance::Rebatched)?;
        self.independent |= rows > 1;
        Ok(columns)
    }

    fn run(&self, inputs: &M::Input, mut writer: ColumnWriter) -> Result<Vec<Column>> {
        let Source::Built(module, watch) = &self.module else {
            return Err(module_error::<M>("has not been built".to_owned()));
        };
        watch.check()?;
        let output = Extractor::forward(module, inputs)?;
        watch.check()?;
        output.write(&mut writer).map_err(in_module::<M>)?;
        Ok(writer.finish())
    }
}

/// Runs with gradients on; what was before is restored even if the module panics.
fn with_grad<T>(run: impl FnOnce() -> T) -> T {
    let done = tch::with_grad(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)));
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Compares the first rows.
fn compare<M: CachedModule>(a: &[Column], b: &[Column], tolerance: Tolerance) -> Result<()> {
    let (what, remedy) = match tolerance {
        Tolerance::Repeated => (
            "the same sample gave two different outputs",
            "make `forward` deterministic: no dropout, no random transform",
        ),
        Tolerance::Rebatched => (
            "a sample gave another output in a batch than alone",
            "compute each sample for itself: batch norm in eval mode, padding masked",
        ),
    };
    for ((leaf, a), b) in M::Output::COLUMN.leaves().iter().zip(a).zip(b) {
        let (a, b) = (a.row(0, &leaf.kind), b.row(0, &leaf.kind));
        if let Some(found) = difference(&leaf.kind, a, b, tolerance) {
            return Err(module_error::<M>(format!("{what}: field `{}` {found}; {remedy}", leaf.name)));
        }
    }
    Ok(())
}

fn alone_failed<M: CachedModule>(error: &Error) -> Error {
    module_error::<M>(format!(
        "computed a batch, but failed on its first sample alone: {error}; a batch may hold any number of samples, \
         since only those that are missing are computed"
    ))
}

fn in_module<M: CachedModule>(error: Error) -> Error {
    match error {
        Error::Output { part, expected, found } => {
            Error::Output { part: format!("module `{}`: {part}", M::ID).into(), expected, found }
        }
        other => other,
    }
}

fn module_error<M: CachedModule>(message: String) -> Error {
    Error::Module { id: M::ID.into(), message: message.into() }
}
