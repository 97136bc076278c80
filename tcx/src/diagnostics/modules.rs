//! Types that a cached module cannot hold.

use std::cell::{Cell, LazyCell, OnceCell, RefCell, UnsafeCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16,
    AtomicU32, AtomicU64, AtomicUsize,
};
use std::sync::{LazyLock, Mutex, OnceLock, RwLock};

use crate::{Frozen, Stateless};

/// A field of a module, of which the conditions below speak.
#[doc(hidden)]
#[derive(Debug)]
pub struct ModuleField<'a>(PhantomData<&'a ()>);

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

/// A module with which several threads compute at once.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot compute several batches at once: it is not `Sync`",
    label = "one thread at a time may use this module",
    note = "tensors and networks of tch are not `Sync`; networks of candle and ONNX Runtime, arrays of ndarray and plain values are",
    note = "leave `concurrency` out, or open a handle with a network of its own for each thread"
)]
#[doc(hidden)]
pub trait Concurrent: Send + Sync + 'static {}
// Or the message would be about a pointer deep in the module.
#[diagnostic::do_not_recommend]
impl<T: Send + Sync + 'static> Concurrent for T {}
