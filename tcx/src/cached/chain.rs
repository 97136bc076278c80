//! Modules whose inputs are the outputs of another cached module.

use tcx_store::StampType;

use crate::cache::Cache;
use crate::cached::Cached;
use crate::identity::Identity;
use crate::ids::KeyKind;
use crate::module::extractor::CachedModule;
use crate::output::CacheableOutput;
use crate::{Error, Result};

impl Cache {
    /// Opens the cache of a module whose inputs are the outputs of another one, `upstream`. The identity of `upstream` becomes
    /// part of this module's identity, so other weights in `upstream` never read old rows here. Stamps are not part of it: a
    /// module after one with stamps must have stamps of the same type, or it would serve stale rows after a source changes.
    ///
    /// ```
    /// # use tch::Tensor;
    /// # use tcx::{Cache, D1, Extractor, Typed, cached_module};
    /// # #[cached_module(id = "chain_features_v1")]
    /// # struct Features { size: i64 }
    /// # impl Extractor for Features {
    /// #     type Input = Tensor;
    /// #     type Output = Typed<f32, D1<4>>;
    /// #     fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
    /// #         Ok((x * self.size).into())
    /// #     }
    /// # }
    /// # #[cached_module(id = "chain_head_v1")]
    /// # struct Head {}
    /// # impl Extractor for Head {
    /// #     type Input = Tensor;
    /// #     type Output = Vec<f32>;
    /// #     fn forward(&self, x: &Tensor) -> tcx::Result<Vec<f32>> {
    /// #         Ok(Vec::try_from(x.f_sum_dim_intlist([1i64].as_slice(), false, tch::Kind::Float)?)?)
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let cache = Cache::open(dir.path())?;
    /// # let images = Tensor::ones([2, 4], tch::kind::FLOAT_CPU);
    /// let features = cache.module(Features { size: 224 })?;
    /// let head = cache.module_after(&features, Head {})?;
    /// let ids = ["cat.jpg", "dog.jpg"];
    /// // Nothing is read or computed of `features` for what `head` has.
    /// let scores = head.fetch(&ids, |missing| {
    ///     let ids: Vec<_> = missing.ids().collect();
    ///     let images = images.narrow(0, 0, missing.len() as i64); // load `ids`
    ///     Ok(features.forward(&ids, &images)?.into())
    /// })?;
    /// assert_eq!(scores, [896., 896.]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if `upstream` has stamps and this module has none, or stamps of another type. Otherwise as
    /// [`module`](Self::module); the refusal names the entries of `upstream` as `chain_features_v1/size`.
    pub fn module_after<U: CachedModule, M: CachedModule>(
        &self,
        upstream: &Cached<U>,
        module: M,
    ) -> Result<Cached<M>> {
        self.shared().check_usable()?;
        let mut identity = Identity::of(&module);
        identity.after(upstream);
        self.module_of(identity, module)
    }
}

/// Rows of a module without stamps are found by their ids alone, even if the source behind them has changed.
///
/// # Errors
///
/// Returns an error if the inputs come from a module with stamps, and this module does not have the same.
pub(crate) fn check_stamps<K: KeyKind>(id: &str, identity: &Identity) -> Result<()> {
    let Some((upstream, stamps)) = identity.stamped_otherwise(K::STAMPS) else { return Ok(()) };
    let written = match stamps {
        StampType::Number => "stamp = u64",
        _ => "stamp = bytes",
    };
    let found = if K::STAMPS.is_some() { "stamps of another kind" } else { "none" };
    Err(Error::module(
        id,
        format!(
            "its inputs come from `{upstream}`, whose ids have stamps, but its own ids have {found}: it would serve stale \
             rows after a source changes"
        ),
        format!("write `{written}` in its annotation too, and bump its id"),
    ))
}

impl Identity {
    /// Enters a cached module whose outputs are the inputs of this one, for a [lazy module](Cache::lazy_module); with a
    /// module that exists, [`Cache::module_after`] does so.
    pub fn after<U: CachedModule>(&mut self, upstream: &Cached<U>) {
        let leaves = U::Output::COLUMN.leaves();
        let leaves: Vec<_> =
            leaves.iter().map(|leaf| format!("{}: {}", leaf.name, leaf.described())).collect();
        let mut output = Self::default();
        output.part("Output", |identity| {
            identity.value(leaves.join(", "));
            U::Output::describe(identity);
        });
        let entries = upstream.entries().iter().chain(output.entries());
        let entries = entries.map(|(path, value)| (format!("{}/{path}", U::ID), value.clone()));
        self.add_upstream(entries, upstream.sources());
        if let Some(stamps) = U::Key::STAMPS {
            self.add_stamped(U::ID, stamps);
        }
    }
}
