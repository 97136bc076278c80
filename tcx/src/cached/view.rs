//! Several rows of one sample: its views.

use std::fmt;

use crate::Result;
use crate::cache::coverage::Coverage;
use crate::cached::Cached;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::missing::Missing;

/// A cached module, for one view of its samples. Made by [`Cached::view`].
///
/// ```
/// # use tcx::{Extractor, cached_module};
/// # #[cached_module(id = "view_handle_v1")]
/// # struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = Vec<i64>;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<Vec<i64>> {
/// #         Ok(x.iter().map(|text| text.len() as i64).collect())
/// #     }
/// # }
/// # let dir = tempfile::tempdir()?;
/// # let words = tcx::Cache::open(dir.path())?.module(Words {})?;
/// let (plain, flipped) = (words.view(0), words.view(1));
/// plain.forward(&["a"], &vec!["one".to_owned()])?;
/// flipped.forward(&["a"], &vec!["eno, twice".to_owned()])?;
/// // One id, a row for each view.
/// let load = |_: tcx::Missing<'_, &str>| unreachable!("everything is there");
/// assert_eq!((plain.fetch(&["a"], load)?, flipped.fetch(&["a"], load)?), (vec![3], vec![10]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View<'a, M> {
    cached: &'a Cached<M>,
    number: u32,
}

impl<M: CachedModule> Cached<M> {
    /// The module for one view of its samples: an augmentation, a crop. A sample has one id and a row for each view. View 0 is
    /// the sample itself; [`forward`](Self::forward) and [`fetch`](Self::fetch) use it.
    ///
    /// ```
    /// # use tch::Tensor;
    /// # use tcx::{Extractor, cached_module};
    /// # #[cached_module(id = "views_v1")]
    /// # struct Means {}
    /// # impl Extractor for Means {
    /// #     type Input = Tensor;
    /// #     type Output = Vec<f32>;
    /// #     fn forward(&self, x: &Tensor) -> tcx::Result<Vec<f32>> {
    /// #         Ok(Vec::try_from(x.f_mean_dim([1i64].as_slice(), false, tch::Kind::Float)?)?)
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let means = tcx::Cache::open(dir.path())?.module(Means {})?;
    /// # let augmented = |epoch: u32| Ok(Tensor::ones([2, 4], tch::kind::FLOAT_CPU) * i64::from(epoch));
    /// let ids = ["cat.jpg", "dog.jpg"];
    /// for epoch in 0..3 {
    ///     // A view that was computed in an earlier run is served.
    ///     let features = means.view(epoch).fetch(&ids, |_| augmented(epoch))?;
    ///     assert_eq!(features, [epoch as f32; 2]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn view(&self, number: u32) -> View<'_, M> {
        View { cached: self, number }
    }
}

impl<'a, M> View<'a, M> {
    pub(crate) fn cached(&self) -> &'a Cached<M> {
        self.cached
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl<M: CachedModule> View<'_, M> {
    /// As [`Cached::forward`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::forward`].
    pub fn forward<I: Id<M::Key>>(&self, ids: &[I], inputs: &M::Input) -> Result<<M as Extractor>::Output> {
        self.cached.forward_view(ids, self.number, inputs)
    }

    /// As [`Cached::fetch`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::fetch`].
    pub fn fetch<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnOnce(Missing<'_, I>) -> Result<M::Input>,
    ) -> Result<<M as Extractor>::Output> {
        self.cached.fetch_view(ids, self.number, load)
    }

    /// As [`Cached::coverage`], for this view.
    ///
    /// # Errors
    ///
    /// As [`Cached::coverage`].
    pub fn coverage<I: Id<M::Key>>(&self, ids: &[I]) -> Result<Coverage> {
        self.cached.coverage_view(ids, self.number)
    }
}

impl<M> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for View<'_, M> {}

impl<M: CachedModule> fmt::Debug for View<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("cached", self.cached).field("number", &self.number).finish()
    }
}
