//! Types of tch that are no output, or that a cached module cannot hold.

use tch::{CModule, IValue, Tensor, TrainableCModule, nn};

use super::modules::ModuleField;
use super::outputs::{HasDtypeAndShape, OutputField};
use crate::output::CacheableOutput;
use crate::{Frozen, Stateless};

#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for Tensor where for<'a> OutputField<'a>: HasDtypeAndShape<Tensor> {
    never_compiled!(CacheableOutput);
}

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
    note = "freeze it: `tcx::Frozen<tcx::Script>`, made with `Frozen::script(device, \"network.pt\")`"
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
