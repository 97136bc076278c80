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
    /// Not there before a lazy module is built, and after it was released.
    module: Option<(M, WeightWatch)>,
    lazy: Option<Lazy<M>>,
    /// Whether a first batch has shown neither gradients nor randomness.
    deterministic: bool,
    /// Whether a batch of several samples has shown that a sample's output does not depend on the others.
    independent: bool,
}

/// Builds a module.
type Build<M> = Box<dyn FnMut() -> Result<M> + Send>;

/// A module that is built when it is needed, and has to be of this identity.
struct Lazy<M> {
    announced: Identity,
    build: Build<M>,
}

impl<M: CachedModule> Compute<M> {
    pub(crate) fn new(module: M, watch: WeightWatch) -> Self {
        Self { module: Some((module, watch)), lazy: None, deterministic: false, independent: false }
    }

    pub(crate) fn lazy(announced: Identity, build: Build<M>) -> Self {
        let lazy = Some(Lazy { announced, build });
        Self { module: None, lazy, deterministic: false, independent: false }
    }

    /// Builds the module if it is not there.
    fn build(&mut self) -> Result<()> {
        let (None, Some(Lazy { announced, build })) = (&self.module, &mut self.lazy) else { return Ok(()) };
        let module = build()?;
        let identity = Identity::of(&module);
        if identity.entries() != announced.entries() {
            return Err(module_error::<M>(
                format!(
                    "was built with another identity than was announced; announced:\n{announced}\nbuilt:\n{identity}"
                ),
                "announce what `build` builds: enter every field, in order",
            ));
        }
        self.module = Some((module, identity.into_watch()));
        Ok(())
    }

    /// Drops a module that can be built again.
    pub(crate) fn release(&mut self) -> bool {
        self.lazy.is_some() && self.module.take().is_some()
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
        let Some((module, watch)) = &self.module else {
            return Err(module_error::<M>("has not been built", "ask again"));
        };
        watch.check().map_err(in_module::<M>)?;
        let output = Extractor::forward(module, inputs).map_err(in_module::<M>)?;
        watch.check().map_err(in_module::<M>)?;
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
        let found = if a.is_present(0) == b.is_present(0) {
            difference(&leaf.kind, a.row(0, &leaf.kind), b.row(0, &leaf.kind), tolerance)
        } else {
            // Where a number is compared with a threshold, its last bits decide.
            (tolerance == Tolerance::Repeated).then(|| "is there and is not".to_owned())
        };
        if let Some(found) = found {
            let error = module_error::<M>(format!("{what}: field `{}` {found}", leaf.name), remedy);
            return Err(error.with_field(&leaf.name));
        }
    }
    Ok(())
}

fn alone_failed<M: CachedModule>(error: &Error) -> Error {
    module_error::<M>(
        format!("computed a batch, but failed on its first sample alone: {error}"),
        "a batch may hold any number of samples, since only those that are missing are computed",
    )
}

fn in_module<M: CachedModule>(error: Error) -> Error {
    error.in_module(M::ID)
}

fn module_error<M: CachedModule>(message: impl Into<Box<str>>, remedy: &'static str) -> Error {
    Error::module(M::ID, message, remedy)
}
