//! The inputs of missing samples: loaded, or taken from those in memory.

use crate::module::batch::Batch;
use crate::module::extractor::CachedModule;
use crate::{Error, ErrorKind, Result};

/// What a loader has returned, once it is as many samples as it was asked for.
pub(crate) fn check_loaded<M: CachedModule>(asked: usize, loaded: Result<M::Input>) -> Result<M::Input> {
    let loaded = loaded.map_err(|error| error.in_module(M::ID))?;
    let samples = loaded.rows().map_err(|error| error.in_module(M::ID))?;
    if samples == asked {
        return Ok(loaded);
    }
    let error = format!("the loader returned the wrong number of samples: expected {asked}, found {samples}");
    let error = Error::batch(error).with_expected(asked.to_string(), samples.to_string());
    let remedy = "return the inputs of the missing samples, in their order";
    Err(error.in_module(M::ID).with_remedy(remedy))
}

/// The inputs at `positions`; all of them are not copied.
pub(crate) fn select<'a, B: Batch>(
    inputs: &'a B,
    samples: usize,
    positions: &[usize],
) -> Result<Selected<'a, B>> {
    if positions.iter().copied().eq(0..samples) {
        return Ok(Selected::All(inputs));
    }
    inputs.select(positions).map(Selected::Some)
}

/// The inputs of what is missing.
pub(crate) enum Selected<'a, B> {
    All(&'a B),
    Some(B),
}

impl<B> std::ops::Deref for Selected<'_, B> {
    type Target = B;

    fn deref(&self) -> &B {
        match self {
            Self::All(inputs) => inputs,
            Self::Some(inputs) => inputs,
        }
    }
}

/// Where in `asked` the missing `positions` are. Both ascend.
pub(crate) fn taken<M: CachedModule>(asked: &[usize], positions: &[usize]) -> Result<Vec<usize>> {
    let place = |position| {
        asked.binary_search(position).map_err(|_| {
            // A file that was damaged between two looks can take a row away that was found before.
            let error = Error::new(ErrorKind::Corrupt, "rows that were found have disappeared");
            error.in_module(M::ID).with_remedy("look them up again")
        })
    };
    positions.iter().map(place).collect()
}
