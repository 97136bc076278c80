//! Ids that are in the inputs.

use crate::Result;
use crate::cached::Cached;
use crate::cached::compute::in_module;
use crate::cached::view::View;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};

/// A module whose inputs contain the ids of their samples, for [`Cached::forward_keyed`].
///
/// `ids` has no `self`, because tcx needs the ids before it knows whether the network is needed. A
/// [`lazy`](crate::Cache::lazy_module) network may never be built.
///
/// ```
/// use tcx::{Cache, Extractor, Keyed, cached_module};
///
/// #[cached_module(id = "words_v1")]
/// struct Words {}
///
/// impl Extractor for Words {
///     type Input = (Vec<String>, Vec<String>); // names and texts
///     type Output = Vec<i64>;
///
///     fn forward(&self, (_, texts): &Self::Input) -> tcx::Result<Vec<i64>> {
///         Ok(texts.iter().map(|text| text.split(' ').count() as i64).collect())
///     }
/// }
///
/// impl Keyed for Words {
///     type Id = String;
///
///     fn ids((names, _): &Self::Input) -> tcx::Result<Vec<String>> {
///         Ok(names.clone())
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let words = Cache::open(dir.path())?.module(Words {})?;
/// let batch = (vec!["a.txt".to_owned()], vec!["a cat on a mat".to_owned()]);
/// assert_eq!(words.forward_keyed(&batch)?, [5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// For inputs without names, derive ids from the content: `type Id = ContentId` and
/// [`ContentId::of_samples`](crate::ContentId::of_samples).
#[diagnostic::on_unimplemented(
    message = "the inputs of `{Self}` contain no sample ids",
    label = "no `impl Keyed for {Self}`",
    note = "pass the ids with the inputs: `forward(&ids, &inputs)`",
    note = "or write `impl tcx::Keyed for {Self}`, whose `ids` takes them from the inputs"
)]
pub trait Keyed: CachedModule {
    /// The type of an id.
    type Id: Id<Self::Key>;

    /// The ids of a batch: one for each sample, in the same order.
    fn ids(input: &Self::Input) -> Result<Vec<Self::Id>>;
}

impl<M: CachedModule> Cached<M> {
    /// The outputs for a batch that contains the ids of its samples: as [`forward`](Self::forward).
    ///
    /// # Errors
    ///
    /// As [`forward`](Self::forward). Also returns the errors of [`Keyed::ids`].
    pub fn forward_keyed(&self, inputs: &M::Input) -> Result<<M as Extractor>::Output>
    where
        M: Keyed,
    {
        self.view(0).forward_keyed(inputs)
    }
}

impl<M: CachedModule> View<'_, M> {
    /// As [`Cached::forward_keyed`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::forward_keyed`].
    pub fn forward_keyed(&self, inputs: &M::Input) -> Result<<M as Extractor>::Output>
    where
        M: Keyed,
    {
        let ids = M::ids(inputs).map_err(|error| in_module::<M>(error.returned_by(|| "`ids` failed")))?;
        self.forward(&ids, inputs)
    }
}
