//! What a user implements: the extractor; and what `#[cached_module]` adds to it.

use crate::Result;
use crate::identity::stateless::Stateless;
use crate::ids::KeyKind;
use crate::module::batch::Batch;
use crate::output::CacheableOutput;

/// A frozen network, seen as a function from a batch of samples to their features.
///
/// `forward` must compute each sample independently. The output of a sample must not depend on other samples of the batch, on
/// randomness, or on earlier calls.
///
/// ```
/// use tch::Tensor;
/// use tcx::{cached_module, Extractor, Typed, D1};
///
/// /// The mean colour of an image.
/// #[cached_module(id = "mean_colour_v1")]
/// struct MeanColour {
///     scale: f64,
/// }
///
/// impl Extractor for MeanColour {
///     type Input = Tensor;
///     type Output = Typed<f32, D1<3>>;
///
///     fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
///         Ok((images.f_mean_dim([2, 3].as_slice(), false, tch::Kind::Float)? * self.scale).into())
///     }
/// }
///
/// let colours = MeanColour { scale: 2. }.forward(&Tensor::ones([4, 3, 8, 8], tch::kind::FLOAT_CPU))?;
/// assert_eq!(colours.size(), [4, 3]);
/// # Ok::<(), tcx::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an `Extractor`: tcx does not know how to compute it",
    label = "no `impl Extractor for {Self}`",
    note = "write `impl tcx::Extractor for {Self}`, with its `Input`, its `Output` and `forward`"
)]
pub trait Extractor {
    /// A batch of samples: a tensor, a vector with one entry per sample, or a tuple of these.
    type Input: Batch + 'static;
    /// A batch of features: a struct with `#[derive(CacheableOutput)]`, a tuple, or a
    /// [`Typed`](crate::Typed) tensor.
    type Output: CacheableOutput;

    /// Computes the features of every sample in `input`, in order.
    fn forward(&self, input: &Self::Input) -> Result<Self::Output>;
}

/// An [`Extractor`] whose outputs may be cached. Implemented by
/// [`#[cached_module]`](macro@crate::cached_module) and by nothing else.
///
/// ```
/// use tcx::{CachedModule, Extractor, cached_module};
///
/// #[cached_module(id = "module_ids_v1")]
/// struct Lengths {}
/// # impl Extractor for Lengths {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
///
/// /// Works with whatever module may be cached.
/// fn folder<M: CachedModule>(cache: &std::path::Path, _: &M) -> std::path::PathBuf {
///     cache.join(M::ID)
/// }
/// assert!(folder("cache".as_ref(), &Lengths {}).ends_with("module_ids_v1"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cached module",
    label = "no `#[cached_module]` on this type",
    note = "annotate the struct: `#[cached_module(id = \"my_module_v1\")]`"
)]
pub trait CachedModule: Extractor + Stateless {
    /// The id of this module, which names its folder. A module that computes something else needs another id.
    const ID: &'static str;
    /// The type of the ids of its samples.
    type Key: KeyKind;
}
