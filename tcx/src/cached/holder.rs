//! What holds the module of a handle: it is built at the first need, and used by one thread at a time, or shared by threads.

use std::sync::Arc;

use tcx_store::Attestation;

use crate::Result;
use crate::cache::alone::Held;
use crate::cached::compute::{in_module, module_error};
use crate::identity::Identity;
use crate::identity::sources::Sources;
use crate::identity::watch::WeightWatch;
use crate::module::extractor::CachedModule;
use crate::tensor::Device;

/// A module, as long as it is there.
pub(crate) struct Holder<M> {
    /// Not there before a lazy module is built, and after it was released.
    module: Option<Module<M>>,
    lazy: Option<Lazy<M>>,
    /// Makes a module that threads share of a built one. Without it, one thread at a time uses the module.
    share: Option<Share<M>>,
}

/// A module that is built, and the watch over its weights.
pub(crate) struct Built<M> {
    pub(crate) module: M,
    pub(crate) watch: WeightWatch,
    /// That of its weights, if it has any.
    pub(crate) device: Option<Device>,
}

enum Module<M> {
    ForOne(Built<M>),
    ForAll(Arc<dyn SharedModule<M>>),
}

/// A module that threads use at once. Only a `Sync` one is made such a module. Without this trait, handles of all others could not
/// cross threads.
pub(crate) trait SharedModule<M>: Send + Sync {
    fn built(&self) -> &Built<M>;
}

impl<M: Send + Sync> SharedModule<M> for Built<M> {
    fn built(&self) -> &Self {
        self
    }
}

type Share<M> = fn(Built<M>) -> Arc<dyn SharedModule<M>>;

/// Builds a module.
type Build<M> = Box<dyn FnMut() -> Result<M> + Send>;

/// A module that is built when it is needed, and has to be of this identity.
struct Lazy<M> {
    announced: Identity,
    build: Build<M>,
}

/// The module, in use by one thread.
pub(crate) enum InUse<'a, M> {
    Alone(Held<'a, Holder<M>>),
    Shared(Arc<dyn SharedModule<M>>),
}

impl<M: CachedModule> Holder<M> {
    pub(crate) fn new(module: M, identity: Identity) -> Self {
        let module = Module::ForOne(Built::new(module, identity));
        Self { module: Some(module), lazy: None, share: None }
    }

    pub(crate) fn lazy(announced: Identity, build: Build<M>) -> Self {
        Self { module: None, lazy: Some(Lazy { announced, build }), share: None }
    }

    /// From now on, threads use the module at once.
    pub(crate) fn share(&mut self)
    where
        M: Send + Sync + 'static,
    {
        self.share = Some(shared);
        if let Some(module) = self.module.take() {
            self.keep(module);
        }
    }

    /// Keeps a module that is built, for one thread at a time or for all.
    fn keep(&mut self, module: Module<M>) {
        self.module = Some(match (module, self.share) {
            (Module::ForOne(built), Some(share)) => Module::ForAll(share(built)),
            (module, _) => module,
        });
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
        // The one that was announced had another type of this name, perhaps.
        identity.check_names(M::ID)?;
        self.keep(Module::ForOne(Built::new(module, identity)));
        Ok(())
    }

    /// Drops a module that can be built again.
    pub(crate) fn release(&mut self) -> bool {
        self.lazy.is_some() && self.module.take().is_some()
    }
}

impl<'a, M: CachedModule> InUse<'a, M> {
    /// Builds the module if it is not there. Other threads wait for that.
    pub(crate) fn of(mut held: Held<'a, Holder<M>>) -> Result<Self> {
        held.build()?;
        Ok(match &held.module {
            Some(Module::ForAll(shared)) => Self::Shared(shared.clone()),
            _ => Self::Alone(held),
        })
    }

    pub(crate) fn built(&self) -> Result<&Built<M>> {
        match self {
            Self::Shared(shared) => Ok(shared.built()),
            Self::Alone(held) => match &held.module {
                Some(Module::ForOne(built)) => Ok(built),
                _ => Err(module_error::<M>("has not been built", "ask again")),
            },
        }
    }
}

impl<M: CachedModule> Built<M> {
    fn new(module: M, identity: Identity) -> Self {
        let device = identity.device().cloned();
        Self { module, watch: identity.into_watch(), device }
    }

    /// What is asked before rows that were just computed become durable; nothing if no weights are behind them.
    ///
    /// # Errors
    ///
    /// Returns an error that names a weight of a module before this one, if that weight is known to have changed.
    pub(crate) fn attestation(&self, sources: &Sources) -> Result<Option<Arc<Attestation>>> {
        sources.attestation(self.watch.attestation(M::ID))
    }
}

fn shared<M: Send + Sync + 'static>(built: Built<M>) -> Arc<dyn SharedModule<M>> {
    Arc::new(built)
}
