//! Messages for types that people try first and that cannot work: each says what to write in its place.
//!
//! A trait has one message for all types. A type gets its own by an impl under a condition that never holds: the
//! compiler then reports the condition. For that, the condition is a trait of another type (`OutputField`,
//! `ModuleField`), has a lifetime that is bound (or the impl itself would be refused), and is true of at least one type
//! (or the compiler would call the impl below a way out). The impls are written out one by one: the compiler quotes
//! them, and the tests of the messages record it.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Mutex, RwLock};

use tch::{CModule, Tensor, TrainableCModule, nn};
use tcx_store::{Column, ColumnType, Lookup};

use crate::__private::never_compiled;
use crate::output::{CacheableOutput, ColumnReader, ColumnWriter};
use crate::typed::{Element, Shape, Typed};
use crate::value::SampleValue;
use crate::{Frozen, Identity, Result, Stateless};

/// A part of an output, of which the conditions below speak.
#[doc(hidden)]
#[derive(Debug)]
pub struct OutputField<'a>(PhantomData<&'a ()>);

/// A field of a module, of which the conditions below speak.
#[doc(hidden)]
#[derive(Debug)]
pub struct ModuleField<'a>(PhantomData<&'a ()>);

// Outputs.

#[diagnostic::on_unimplemented(
    message = "a bare `Tensor` has no compile-time dtype or shape, so it cannot be cached",
    label = "this `Tensor` has no declared dtype and shape",
    note = "in a struct, annotate the field: `#[tensor(f32, [2048])]` (per-sample shape, without the batch dimension)",
    note = "elsewhere (returns, tuples), use `tcx::Typed<f32, D1<2048>>`"
)]
#[doc(hidden)]
pub trait HasDtypeAndShape<T> {}
impl<E: Element, S: Shape> HasDtypeAndShape<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for Tensor where for<'a> OutputField<'a>: HasDtypeAndShape<Tensor> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}

#[diagnostic::on_unimplemented(
    message = "a map cannot be cached: its keys are only known at run time",
    label = "this map has no compile-time columns",
    note = "declare a struct with one field per key and `#[derive(CacheableOutput)]`"
)]
#[doc(hidden)]
pub trait HasColumns<T> {}
impl<E: Element, S: Shape> HasColumns<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<K, V, H> CacheableOutput for HashMap<K, V, H> where for<'a> OutputField<'a>: HasColumns<HashMap<K, V, H>> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl<K, V> CacheableOutput for BTreeMap<K, V> where for<'a> OutputField<'a>: HasColumns<BTreeMap<K, V>> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}

#[diagnostic::on_unimplemented(
    message = "`{T}` is a single value, but an output holds one value per sample",
    label = "not batched",
    note = "use `Vec<{T}>`, with one entry per sample of the batch"
)]
#[doc(hidden)]
pub trait OnePerSample<T> {}
impl<T: SampleValue> OnePerSample<Vec<T>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for bool where for<'a> OutputField<'a>: OnePerSample<bool> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for f32 where for<'a> OutputField<'a>: OnePerSample<f32> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for f64 where for<'a> OutputField<'a>: OnePerSample<f64> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i8 where for<'a> OutputField<'a>: OnePerSample<i8> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i16 where for<'a> OutputField<'a>: OnePerSample<i16> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i32 where for<'a> OutputField<'a>: OnePerSample<i32> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i64 where for<'a> OutputField<'a>: OnePerSample<i64> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for u8 where for<'a> OutputField<'a>: OnePerSample<u8> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for String where for<'a> OutputField<'a>: OnePerSample<String> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}

#[diagnostic::on_unimplemented(
    message = "`()` holds nothing to cache",
    label = "no columns",
    note = "return the features: a struct with `#[derive(CacheableOutput)]`, a tuple, or a `tcx::Typed<f32, D1<2048>>` tensor"
)]
#[doc(hidden)]
pub trait NotEmpty<T> {}
impl<E: Element, S: Shape> NotEmpty<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for () where for<'a> OutputField<'a>: NotEmpty<()> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}

#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be cached: it is there or missing for a whole batch, and the rows of a later batch may come from both kinds",
    label = "optional for the whole batch",
    note = "make it present for every sample: store a placeholder where there is no value, and a `Vec<bool>` field that says where there is one"
)]
#[doc(hidden)]
pub trait AlwaysPresent<T> {}
impl<E: Element, S: Shape> AlwaysPresent<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<T> CacheableOutput for Option<T> where for<'a> OutputField<'a>: AlwaysPresent<Option<T>> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn write(&self, _: &mut ColumnWriter) -> Result<()> { never_compiled() }
    fn read(_: &mut ColumnReader<'_>) -> Result<Self> { never_compiled() }
}

#[diagnostic::on_unimplemented(
    message = "optional values cannot be cached by this version of tcx",
    label = "`{T}` may be absent",
    note = "store a placeholder where there is no value, and a `Vec<bool>` field that says where there is one"
)]
#[doc(hidden)]
pub trait PresentPerSample<T> {}
impl PresentPerSample<f32> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<T> SampleValue for Option<T> where for<'a> OutputField<'a>: PresentPerSample<Option<T>> {
    const COLUMN: ColumnType = ColumnType::Struct(&[]);
    fn column(_: &[Self]) -> Column { never_compiled() }
    fn gather(_: &Lookup, _: usize) -> Result<Vec<Self>> { never_compiled() }
}

// Modules.

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
impl Stateless for nn::Linear where for<'a> ModuleField<'a>: NotTrainable<nn::Linear> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<ND> Stateless for nn::Conv<ND> where for<'a> ModuleField<'a>: NotTrainable<nn::Conv<ND>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<ND> Stateless for nn::ConvTransposeND<ND> where for<'a> ModuleField<'a>: NotTrainable<nn::ConvTransposeND<ND>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::BatchNorm where for<'a> ModuleField<'a>: NotTrainable<nn::BatchNorm> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::LayerNorm where for<'a> ModuleField<'a>: NotTrainable<nn::LayerNorm> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::GroupNorm where for<'a> ModuleField<'a>: NotTrainable<nn::GroupNorm> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Embedding where for<'a> ModuleField<'a>: NotTrainable<nn::Embedding> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::LSTM where for<'a> ModuleField<'a>: NotTrainable<nn::LSTM> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::GRU where for<'a> ModuleField<'a>: NotTrainable<nn::GRU> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Sequential where for<'a> ModuleField<'a>: NotTrainable<nn::Sequential> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::SequentialT where for<'a> ModuleField<'a>: NotTrainable<nn::SequentialT> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::Func<'f> where for<'a> ModuleField<'a>: NotTrainable<nn::Func<'f>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::FuncT<'f> where for<'a> ModuleField<'a>: NotTrainable<nn::FuncT<'f>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
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
impl Stateless for dyn nn::Module where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::Module> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::ModuleT where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::ModuleT> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::Module + Send where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::Module + Send> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for dyn nn::ModuleT + Send where for<'a> ModuleField<'a>: NotTrainableObject<dyn nn::ModuleT + Send> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[diagnostic::on_unimplemented(
    message = "`{T}` gives access to weights, and lets them change",
    label = "weights can be changed through it",
    note = "hold the network alone, as `tcx::Frozen<…>`: it keeps its variables to itself, and `Frozen::build(var_store, |p| …)` takes a store in"
)]
#[doc(hidden)]
pub trait NotVariables<T> {}
impl<M> NotVariables<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::VarStore where for<'a> ModuleField<'a>: NotVariables<nn::VarStore> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<'f> Stateless for nn::Path<'f> where for<'a> ModuleField<'a>: NotVariables<nn::Path<'f>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for nn::Optimizer where for<'a> ModuleField<'a>: NotVariables<nn::Optimizer> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[diagnostic::on_unimplemented(
    message = "`{T}` holds weights that can be changed",
    label = "a TorchScript module is not frozen",
    note = "freeze it: `tcx::Frozen<tch::CModule>`, made with `Frozen::script(device, \"network.pt\")`"
)]
#[doc(hidden)]
pub trait NotScript<T> {}
impl<M> NotScript<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for CModule where for<'a> ModuleField<'a>: NotScript<CModule> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for TrainableCModule where for<'a> ModuleField<'a>: NotScript<TrainableCModule> { fn identity(&self, _: &mut Identity) { never_compiled() } }

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
impl Stateless for Tensor where for<'a> ModuleField<'a>: NotWritable<Tensor> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[diagnostic::on_unimplemented(
    message = "`{T}` can change between two calls, and outputs with it",
    label = "holds state",
    note = "if it cannot change an output (a counter, say), mark the field `#[tcx(assume_stateless)]`"
)]
#[doc(hidden)]
pub trait NotMutable<T> {}
impl<M> NotMutable<Frozen<M>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for Cell<T> where for<'a> ModuleField<'a>: NotMutable<Cell<T>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for RefCell<T> where for<'a> ModuleField<'a>: NotMutable<RefCell<T>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for UnsafeCell<T> where for<'a> ModuleField<'a>: NotMutable<UnsafeCell<T>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for Mutex<T> where for<'a> ModuleField<'a>: NotMutable<Mutex<T>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<T> Stateless for RwLock<T> where for<'a> ModuleField<'a>: NotMutable<RwLock<T>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicBool where for<'a> ModuleField<'a>: NotMutable<AtomicBool> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI32 where for<'a> ModuleField<'a>: NotMutable<AtomicI32> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicI64 where for<'a> ModuleField<'a>: NotMutable<AtomicI64> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU32 where for<'a> ModuleField<'a>: NotMutable<AtomicU32> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicU64 where for<'a> ModuleField<'a>: NotMutable<AtomicU64> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl Stateless for AtomicUsize where for<'a> ModuleField<'a>: NotMutable<AtomicUsize> { fn identity(&self, _: &mut Identity) { never_compiled() } }

#[diagnostic::on_unimplemented(
    message = "`{T}` has no order: it differs from run to run, and the cache's identity with it",
    label = "not ordered",
    note = "use `BTreeMap` or `BTreeSet`"
)]
#[doc(hidden)]
pub trait HasOrder<T> {}
impl<K, V> HasOrder<BTreeMap<K, V>> for ModuleField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<K, V, H> Stateless for HashMap<K, V, H> where for<'a> ModuleField<'a>: HasOrder<HashMap<K, V, H>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
#[doc(hidden)]
#[rustfmt::skip]
impl<T, H> Stateless for HashSet<T, H> where for<'a> ModuleField<'a>: HasOrder<HashSet<T, H>> { fn identity(&self, _: &mut Identity) { never_compiled() } }
