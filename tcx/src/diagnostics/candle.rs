//! Types of candle that are no output, or that a cached module cannot hold.

use candle_core::{Tensor, Var};
use candle_nn::{
    BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Embedding, Func, FuncT, GRU, GroupNorm,
    LSTM, LayerNorm, Linear, PReLU, RmsNorm, Sequential, VarBuilder, VarMap,
};

use super::modules::ModuleField;
use super::outputs::OutputField;
use crate::output::CacheableOutput;
use crate::output::typed::{Shape, Typed};
use crate::tensor::Element;
use crate::{Frozen, Stateless};

#[diagnostic::on_unimplemented(
    message = "a bare `Tensor` has no compile-time dtype or shape, so it cannot be cached",
    label = "this `Tensor` has no declared dtype and shape",
    note = "in a struct, annotate the field: `#[tensor(f32, [2048])]` (per-sample shape, without the batch dimension)",
    note = "elsewhere (returns, tuples), use `tcx::Typed<f32, D1<2048>, candle_core::Tensor>`"
)]
#[doc(hidden)]
pub trait HasDtypeAndShape<T> {}
impl<E: Element, S: Shape> HasDtypeAndShape<Typed<E, S, Tensor>> for OutputField<'_> {}

#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for Tensor where for<'a> OutputField<'a>: HasDtypeAndShape<Tensor> {
    never_compiled!(CacheableOutput);
}

#[diagnostic::on_unimplemented(
    message = "`{T}` owns trainable parameters",
    label = "trainable: its outputs change as it trains, so caching them would be wrong",
    note = "freeze it: `tcx::Frozen<{T}>`, made with `Frozen::candle(&device, dtype, \"weights.safetensors\", |vb| …)`"
)]
#[doc(hidden)]
pub trait NotTrainable<T> {}
impl<M> NotTrainable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for BatchNorm where for<'a> ModuleField<'a>: NotTrainable<BatchNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Conv1d where for<'a> ModuleField<'a>: NotTrainable<Conv1d> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Conv2d where for<'a> ModuleField<'a>: NotTrainable<Conv2d> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for ConvTranspose1d where for<'a> ModuleField<'a>: NotTrainable<ConvTranspose1d> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for ConvTranspose2d where for<'a> ModuleField<'a>: NotTrainable<ConvTranspose2d> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Embedding where for<'a> ModuleField<'a>: NotTrainable<Embedding> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for GRU where for<'a> ModuleField<'a>: NotTrainable<GRU> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for GroupNorm where for<'a> ModuleField<'a>: NotTrainable<GroupNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for LSTM where for<'a> ModuleField<'a>: NotTrainable<LSTM> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for LayerNorm where for<'a> ModuleField<'a>: NotTrainable<LayerNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Linear where for<'a> ModuleField<'a>: NotTrainable<Linear> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for PReLU where for<'a> ModuleField<'a>: NotTrainable<PReLU> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for RmsNorm where for<'a> ModuleField<'a>: NotTrainable<RmsNorm> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Sequential where for<'a> ModuleField<'a>: NotTrainable<Sequential> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for Func<'f> where for<'a> ModuleField<'a>: NotTrainable<Func<'f>> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for FuncT<'f> where for<'a> ModuleField<'a>: NotTrainable<FuncT<'f>> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "`{T}` gives write access to weights",
    label = "weights can be changed through it",
    note = "store only the network, as `tcx::Frozen<…>`: save its weights to a file, and build it with `Frozen::candle(&device, dtype, file, |vb| …)`"
)]
#[doc(hidden)]
pub trait NotVariables<T> {}
impl<M> NotVariables<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Var where for<'a> ModuleField<'a>: NotVariables<Var> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for VarMap where for<'a> ModuleField<'a>: NotVariables<VarMap> { never_compiled!(Stateless); }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for VarBuilder<'f> where for<'a> ModuleField<'a>: NotVariables<VarBuilder<'f>> { never_compiled!(Stateless); }

#[diagnostic::on_unimplemented(
    message = "a bare `Tensor` in a module may be that of a `Var`, and can be written to at any time",
    label = "not frozen",
    note = "hold it as `tcx::Frozen<Tensor>`, made with `Frozen::constant(&tensor)`"
)]
#[doc(hidden)]
pub trait NotWritable<T> {}
impl<M> NotWritable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for Tensor where for<'a> ModuleField<'a>: NotWritable<Tensor> { never_compiled!(Stateless); }
