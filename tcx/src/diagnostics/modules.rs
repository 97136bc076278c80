//! Types that a cached module cannot hold.

use std::cell::{Cell, LazyCell, OnceCell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16,
    AtomicU32, AtomicU64, AtomicUsize,
};
use std::sync::{LazyLock, Mutex, OnceLock, RwLock};

use tch::{CModule, IValue, Tensor, TrainableCModule, nn};

use crate::{Frozen, Stateless};

/// A field of a module, of which the conditions below speak.
#[doc(hidden)]
#[derive(Debug)]
pub struct ModuleField<'a>(PhantomData<&'a ()>);

#[diagnostic::on_unimplemented(
    message = "`{T}` owns trainable parameters",
    label = "trainable: its outputs change as it trains, so caching them would be wrong",
    note = "freeze it: `tcx::Frozen<{T}>`, made with `Frozen::load(device, \"weights.safetensors\", |p| …)`"
)]
#[doc(hidden)]
pub trait NotTrainable<T> {}
impl<M> NotTrainable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Linear where for<'a> ModuleField<'a>: NotTrainable<nn::Linear> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<ND> Stateless for nn::Conv<ND> where for<'a> ModuleField<'a>: NotTrainable<nn::Conv<ND>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<ND> Stateless for nn::ConvTransposeND<ND> where for<'a> ModuleField<'a>: NotTrainable<nn::ConvTransposeND<ND>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::BatchNorm where for<'a> ModuleField<'a>: NotTrainable<nn::BatchNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::LayerNorm where for<'a> ModuleField<'a>: NotTrainable<nn::LayerNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::GroupNorm where for<'a> ModuleField<'a>: NotTrainable<nn::GroupNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Embedding where for<'a> ModuleField<'a>: NotTrainable<nn::Embedding> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::LSTM where for<'a> ModuleField<'a>: NotTrainable<nn::LSTM> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::GRU where for<'a> ModuleField<'a>: NotTrainable<nn::GRU> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Sequential where for<'a> ModuleField<'a>: NotTrainable<nn::Sequential> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::SequentialT where for<'a> ModuleField<'a>: NotTrainable<nn::SequentialT> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::Func<'f> where for<'a> ModuleField<'a>: NotTrainable<nn::Func<'f>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::FuncT<'f> where for<'a> ModuleField<'a>: NotTrainable<nn::FuncT<'f>> { never_compiled!(Stateless); }
#[diagnostic::on_unimplemented(
    message = "`{T}` may own trainable parameters",
    label = "trainable: its outputs change as it trains, so caching them would be wrong",
    note = "freeze it: `tcx::Frozen<Box<{T}>>`, made with `Frozen::load(device, \"weights.safetensors\", |p| …)`"
)]
#[doc(hidden)]
pub trait NotTrainableObject<T: ?Sized> {}
impl<M> NotTrainableObject<Frozen<M>> for ModuleField<'_> {}

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::Module where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::Module> { never_compiled!(Stateless); }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::ModuleT where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::ModuleT> { never_compiled!(Stateless); }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::Module + Send where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::Module + Send> { never_compiled!(Stateless); }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::ModuleT + Send where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::ModuleT + Send> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` gives write access to weights",
    label = "weights can be changed through it",
    note = "store only the network, as `tcx::Frozen<…>`: `Frozen::build(var_store, |p| …)` takes over the store"
)]
#[doc(hidden)]
pub trait NotVariables<T> {}
impl<M> NotVariables<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::VarStore where for<'a> ModuleField<'a>: NotVariables<nn::VarStore> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::Path<'f> where for<'a> ModuleField<'a>: NotVariables<nn::Path<'f>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Optimizer where for<'a> ModuleField<'a>: NotVariables<nn::Optimizer> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Variables where for<'a> ModuleField<'a>: NotVariables<nn::Variables> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` contains weights that can be changed",
    label = "a TorchScript module is not frozen",
    note = "freeze it: `tcx::Frozen<tch::CModule>`, made with `Frozen::script(device, \"network.pt\")`"
)]
#[doc(hidden)]
pub trait NotScript<T> {}
impl<M> NotScript<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for CModule where for<'a> ModuleField<'a>: NotScript<CModule> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for TrainableCModule where for<'a> ModuleField<'a>: NotScript<TrainableCModule> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "a bare `Tensor` in a module can be written to at any time",
    label = "not frozen",
    note = "hold it as `tcx::Frozen<Tensor>`, made with `Frozen::tensor(t)`"
)]
#[doc(hidden)]
pub trait NotWritable<T> {}
impl<M> NotWritable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Tensor where for<'a> ModuleField<'a>: NotWritable<Tensor> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` holds tensors that can be written to at any time",
    label = "not frozen",
    note = "hold each tensor as `tcx::Frozen<Tensor>`, made with `Frozen::tensor(t)`; a state that changes from batch to batch cannot be cached"
)]
#[doc(hidden)]
pub trait HoldsNoTensors<T> {}
impl<M> HoldsNoTensors<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::LSTMState where for<'a> ModuleField<'a>: HoldsNoTensors<nn::LSTMState> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::GRUState where for<'a> ModuleField<'a>: HoldsNoTensors<nn::GRUState> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for IValue where for<'a> ModuleField<'a>: HoldsNoTensors<IValue> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` can change between two calls, and so could the outputs",
    label = "holds state",
    note = "if it cannot change an output (a counter, say), mark the field `#[tcx(not_identity, assume_stateless)]`"
)]
#[doc(hidden)]
pub trait NotMutable<T> {}
impl<M> NotMutable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for Cell<T> where for<'a> ModuleField<'a>: NotMutable<Cell<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for RefCell<T> where for<'a> ModuleField<'a>: NotMutable<RefCell<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for UnsafeCell<T> where for<'a> ModuleField<'a>: NotMutable<UnsafeCell<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for Mutex<T> where for<'a> ModuleField<'a>: NotMutable<Mutex<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for RwLock<T> where for<'a> ModuleField<'a>: NotMutable<RwLock<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for OnceCell<T> where for<'a> ModuleField<'a>: NotMutable<OnceCell<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for OnceLock<T> where for<'a> ModuleField<'a>: NotMutable<OnceLock<T>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T, F> Stateless for LazyCell<T, F> where for<'a> ModuleField<'a>: NotMutable<LazyCell<T, F>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T, F> Stateless for LazyLock<T, F> where for<'a> ModuleField<'a>: NotMutable<LazyLock<T, F>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicBool where for<'a> ModuleField<'a>: NotMutable<AtomicBool> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI8 where for<'a> ModuleField<'a>: NotMutable<AtomicI8> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI16 where for<'a> ModuleField<'a>: NotMutable<AtomicI16> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI32 where for<'a> ModuleField<'a>: NotMutable<AtomicI32> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI64 where for<'a> ModuleField<'a>: NotMutable<AtomicI64> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicIsize where for<'a> ModuleField<'a>: NotMutable<AtomicIsize> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU8 where for<'a> ModuleField<'a>: NotMutable<AtomicU8> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU16 where for<'a> ModuleField<'a>: NotMutable<AtomicU16> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU32 where for<'a> ModuleField<'a>: NotMutable<AtomicU32> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU64 where for<'a> ModuleField<'a>: NotMutable<AtomicU64> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicUsize where for<'a> ModuleField<'a>: NotMutable<AtomicUsize> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for AtomicPtr<T> where for<'a> ModuleField<'a>: NotMutable<AtomicPtr<T>> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` has no fixed order: the cache's identity would differ from run to run",
    label = "not ordered",
    note = "use `BTreeMap` or `BTreeSet`"
)]
#[doc(hidden)]
pub trait HasOrder<T> {}
impl<K, V> HasOrder<BTreeMap<K, V>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<K, V, H> Stateless for HashMap<K, V, H> where for<'a> ModuleField<'a>: HasOrder<HashMap<K, V, H>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<T, H> Stateless for HashSet<T, H> where for<'a> ModuleField<'a>: HasOrder<HashSet<T, H>> { never_compiled!(Stateless); }
