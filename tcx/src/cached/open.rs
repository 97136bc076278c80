//! Opening the cache of a module.

use std::sync::Arc;

use crate::Result;
use crate::cache::Cache;
use crate::cache::mode::Rows;
use crate::cached::Cached;
use crate::cached::chain::check_stamps;
use crate::cached::holder::Holder;
use crate::identity::Identity;
use crate::identity::sources::Sources;
use crate::module::extractor::CachedModule;
use crate::module::registry::check_unique;
use crate::tensor::Device;

impl Cache {
    /// Opens the cache of a module.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder of this id belongs to another module (other fields, weights, outputs, or ids), if two
    /// modules of the program have this id, or if the cache is closed. The message names both sides.
    pub fn module<M: CachedModule>(&self, module: M) -> Result<Cached<M>> {
        // Before anything is computed: libtorch may have left its threads in the parent of a forked process.
        self.shared().check_usable()?;
        self.module_of(Identity::of(&module), module)
    }

    /// Opens the cache of a module of this identity.
    pub(crate) fn module_of<M: CachedModule>(&self, identity: Identity, module: M) -> Result<Cached<M>> {
        let device = identity.device().cloned().unwrap_or(Device::CPU);
        let rows = self.rows::<M>(&identity, &device)?;
        let entries = identity.all_entries();
        let sources = self.sources::<M>(&identity)?;
        Ok(Cached::new(self, rows, Holder::new(module, identity), sources, entries, device))
    }

    /// Opens the cache of a module that is built when the first sample is missing, and never if all samples are in the cache.
    /// Outputs are put on `device`.
    ///
    /// `identity` is the one that the module will have: its type's name, then its fields, with [`Weights`](crate::Weights) in
    /// place of each [`Frozen`](crate::Frozen) that is loaded from a file of tensors. (Scripts and single tensors have no such
    /// replacement.) It is compared when the module is built.
    ///
    /// ```
    /// # use tch::{Device, Tensor, kind, nn, nn::Module};
    /// # use tcx::{D1, Extractor, Frozen, Typed, cached_module};
    /// use tcx::{Identity, Weights};
    ///
    /// #[cached_module(id = "head_v1")]
    /// struct Head {
    ///     fc: Frozen<nn::Linear>,
    ///     size: i64,
    /// }
    /// # impl Extractor for Head {
    /// #     type Input = Tensor;
    /// #     type Output = Typed<f32, D1<2>>;
    /// #     fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
    /// #         Ok(self.fc.forward(x).into())
    /// #     }
    /// # }
    /// # let dir = tempfile::tempdir()?;
    /// # let file = dir.path().join("head.safetensors");
    /// # Frozen::build(nn::VarStore::new(Device::Cpu), |p| nn::linear(p, 4, 2, Default::default()))?.save(&file)?;
    /// # let cache = tcx::Cache::open(dir.path().join("cache"))?;
    ///
    /// let mut identity = Identity::default();
    /// identity.type_name("Head");
    /// identity.field("fc", &Weights::of_file(&file)?); // read, not built
    /// identity.field("size", &224i64);
    /// let head = cache.lazy_module(identity, Device::Cpu, move || {
    ///     let fc = Frozen::load(Device::Cpu, &file, |p| nn::linear(p, 4, 2, Default::default()))?;
    ///     Ok(Head { fc, size: 224 })
    /// })?;
    /// head.forward(&["a"], &Tensor::ones([1, 4], kind::FLOAT_CPU))?; // built here
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`module`](Self::module). Also returns an error if libtorch does not have the device. An error of `build`, and a built
    /// module of another identity than `identity`, are returned when the first sample is missing.
    pub fn lazy_module<M: CachedModule>(
        &self,
        identity: Identity,
        device: impl Into<Device>,
        build: impl FnMut() -> Result<M> + Send + 'static,
    ) -> Result<Cached<M>> {
        let device = device.into();
        device.check()?;
        let rows = self.rows::<M>(&identity, &device)?;
        let entries = identity.all_entries();
        let sources = self.sources::<M>(&identity)?;
        let holder = Holder::lazy(identity, Box::new(build));
        Ok(Cached::new(self, rows, holder, sources, entries, device))
    }

    fn sources<M: CachedModule>(&self, identity: &Identity) -> Result<Arc<Sources>> {
        Ok(Sources::new(self.origin(M::ID, identity)?, identity.before.clone()))
    }

    fn rows<M: CachedModule>(&self, identity: &Identity, device: &Device) -> Result<Rows> {
        check_unique(M::ID)?;
        self.shared().check_usable()?;
        check_stamps::<M::Key>(M::ID, identity)?;
        self.open_rows::<M::Output, M::Key>(M::ID, identity, device)
    }
}
