//! Reading only some fields of the outputs of a module.

mod part;

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use self::part::{assert_part, chosen};
use crate::Result;
use crate::cache::gather::Gather;
use crate::cached::Cached;
use crate::ids::Id;
use crate::module::extractor::{CachedModule, Extractor};
use crate::module::missing::Missing;
use crate::output::CacheableOutput;

/// A cached module, of whose outputs only the fields of `P` are read. Made by [`Cached::fields`].
///
/// ```
/// # use tcx::{Cache, Extractor, cached_module};
/// use tcx::{CacheableOutput, Fields};
///
/// #[cached_module(id = "some_fields_v1", output(length: Vec<i64>, text: Vec<String>))]
/// struct Words {}
/// # impl Extractor for Words {
/// #     type Input = Vec<String>;
/// #     type Output = WordsOutput;
/// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<WordsOutput> {
/// #         Ok(WordsOutput { length: x.iter().map(|text| text.len() as i64).collect(), text: x.clone() })
/// #     }
/// # }
///
/// #[derive(CacheableOutput)]
/// struct Length {
///     length: Vec<i64>,
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let words = Cache::open(dir.path())?.module(Words {})?;
/// let lengths: Fields<'_, Words, Length> = words.fields()?;
/// assert_eq!(lengths.forward(&["a"], &vec!["one".to_owned()])?.length, [3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fields<'a, M, P> {
    cached: &'a Cached<M>,
    gather: Arc<Gather>,
    view: u32,
    part: PhantomData<fn() -> P>,
}

impl<M: CachedModule> Cached<M> {
    /// The module for who needs only some fields of its outputs: those of `P`, another output whose fields have the names
    /// and types that they have in the module's. Of rows that are found, nothing else is read, not even from the disk; what
    /// is missing is computed and kept whole.
    ///
    /// ```
    /// # use tch::Tensor;
    /// use tcx::CacheableOutput;
    /// # use tcx::{Cache, Extractor, cached_module};
    ///
    /// #[derive(CacheableOutput)]
    /// struct Features {
    ///     #[tensor(f32, [2048])]
    ///     pooled: Tensor,
    ///     #[tensor(f16, [_, 768])]
    ///     tokens: Vec<Tensor>,
    ///     caption: Vec<String>,
    /// }
    ///
    /// /// What a probe is trained on.
    /// #[derive(CacheableOutput)]
    /// struct Pooled {
    ///     #[tensor(f32, [2048])]
    ///     pooled: Tensor,
    /// }
    /// # #[cached_module(id = "fields_v1")]
    /// # struct Network {}
    /// # impl Extractor for Network {
    /// #     type Input = Tensor;
    /// #     type Output = Features;
    /// #     fn forward(&self, x: &Tensor) -> tcx::Result<Features> {
    /// #         let token = || Tensor::zeros([3, 768], (tch::Kind::Half, tch::Device::Cpu));
    /// #         let samples = x.size()[0] as usize;
    /// #         let tokens = (0..samples).map(|_| token()).collect();
    /// #         Ok(Features { pooled: x.expand([-1, 2048], false), tokens, caption: vec![String::new(); samples] })
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let network = Cache::open(dir.path())?.module(Network {})?;
    /// # let ids = ["cat.jpg", "dog.jpg"];
    /// # let images = || Ok(Tensor::ones([2, 1], tch::kind::FLOAT_CPU));
    ///
    /// let pooled = network.fields::<Pooled>()?;
    /// let features: Pooled = pooled.fetch(&ids, |_missing| images())?;
    /// assert_eq!(features.pooled.size(), [2, 2048]);
    /// // The rows are there for who wants everything.
    /// assert!(network.coverage(&ids)?.is_complete());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A field that the output of the module does not have, or has with another type, does not compile: `cargo build` names the
    /// field, both types, and the line of this call. (`cargo check` does not, since it does not look into generic functions.)
    ///
    /// ```compile_fail
    /// # use tcx::{Cache, CacheableOutput, Extractor, cached_module};
    /// # #[cached_module(id = "no_fields_v1", output(caption: Vec<String>))]
    /// # struct Captions {}
    /// # impl Extractor for Captions {
    /// #     type Input = Vec<String>;
    /// #     type Output = CaptionsOutput;
    /// #     fn forward(&self, x: &Vec<String>) -> tcx::Result<CaptionsOutput> {
    /// #         Ok(CaptionsOutput { caption: x.clone() })
    /// #     }
    /// # }
    /// # let captions = Cache::open("cache")?.module(Captions {})?;
    /// #[derive(CacheableOutput)]
    /// struct Lengths {
    ///     length: Vec<i64>,
    /// }
    ///
    /// captions.fields::<Lengths>()?; // the output of the module has no field `length`
    /// # Ok::<(), tcx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a field of `P` has another meaning in the module's output: an enum with other variants, or floats
    /// that only the module stores as narrower ones. The message names both sides and the line of this call.
    #[track_caller]
    pub fn fields<P: CacheableOutput>(&self) -> Result<Fields<'_, M, P>> {
        // Here and not in a function called from here: the compiler then names the line of the caller.
        const { assert_part(&<M as Extractor>::Output::COLUMN, &P::COLUMN) };
        let leaves = chosen::<M::Output, P>(Location::caller()).map_err(|error| error.in_module(M::ID))?;
        Ok(Fields { cached: self, gather: Arc::new(Gather::of(leaves)), view: 0, part: PhantomData })
    }
}

impl<M: CachedModule, P: CacheableOutput> Fields<'_, M, P> {
    /// The same fields of another [view](Cached::view) of the samples.
    #[must_use]
    pub fn view(&self, number: u32) -> Self {
        Self { view: number, ..self.clone() }
    }

    /// As [`Cached::forward`], for these fields.
    ///
    /// # Errors
    ///
    /// As [`Cached::forward`].
    pub fn forward<I: Id<M::Key>>(&self, ids: &[I], inputs: &<M as Extractor>::Input) -> Result<P> {
        let found = self.cached.forward_rows(ids, self.view, &self.gather, inputs)?;
        self.cached.output(&self.gather, found)
    }

    /// As [`Cached::fetch`], for these fields.
    ///
    /// # Errors
    ///
    /// As [`Cached::fetch`].
    pub fn fetch<I: Id<M::Key>>(
        &self,
        ids: &[I],
        load: impl FnOnce(Missing<'_, I>) -> Result<<M as Extractor>::Input>,
    ) -> Result<P> {
        let found = self.cached.fetch_rows(ids, self.view, &self.gather, load)?;
        self.cached.output(&self.gather, found)
    }
}

impl<M, P> Clone for Fields<'_, M, P> {
    fn clone(&self) -> Self {
        Self { cached: self.cached, gather: self.gather.clone(), view: self.view, part: PhantomData }
    }
}

impl<M: CachedModule, P> fmt::Debug for Fields<'_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cached, gather, view, part: _ } = self;
        f.debug_struct("Fields")
            .field("cached", cached)
            .field("gather", gather)
            .field("view", view)
            .finish_non_exhaustive()
    }
}
