//! Types that are no output, or no part of one.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;

use crate::output::CacheableOutput;
use crate::output::typed::{Shape, Typed};
use crate::output::value::SampleValue;
use crate::tensor::Element;

/// A part of an output, of which the conditions below speak.
#[doc(hidden)]
#[derive(Debug)]
pub struct OutputField<'a>(PhantomData<&'a ()>);

#[cfg(feature = "tch")]
#[diagnostic::on_unimplemented(
    message = "a bare `Tensor` has no compile-time dtype or shape, so it cannot be cached",
    label = "this `Tensor` has no declared dtype and shape",
    note = "in a struct, annotate the field: `#[tensor(f32, [2048])]` (per-sample shape, without the batch dimension)",
    note = "elsewhere (returns, tuples), use `tcx::Typed<f32, D1<2048>>`"
)]
#[doc(hidden)]
pub trait HasDtypeAndShape<T> {}
#[cfg(feature = "tch")]
impl<E: Element, S: Shape> HasDtypeAndShape<Typed<E, S>> for OutputField<'_> {}

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
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl<K, V> CacheableOutput for BTreeMap<K, V> where for<'a> OutputField<'a>: HasColumns<BTreeMap<K, V>> {
    never_compiled!(CacheableOutput);
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
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for f32 where for<'a> OutputField<'a>: OnePerSample<f32> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for f64 where for<'a> OutputField<'a>: OnePerSample<f64> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i8 where for<'a> OutputField<'a>: OnePerSample<i8> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i16 where for<'a> OutputField<'a>: OnePerSample<i16> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i32 where for<'a> OutputField<'a>: OnePerSample<i32> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for i64 where for<'a> OutputField<'a>: OnePerSample<i64> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for u8 where for<'a> OutputField<'a>: OnePerSample<u8> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for String where for<'a> OutputField<'a>: OnePerSample<String> {
    never_compiled!(CacheableOutput);
}
#[doc(hidden)]
#[rustfmt::skip]
impl<T, const N: usize> CacheableOutput for [T; N] where for<'a> OutputField<'a>: OnePerSample<[T; N]> {
    never_compiled!(CacheableOutput);
}

/// The same for a type of the user's. A macro of this kind, since the compiler advises against derives whose impls have
/// a condition.
#[doc(hidden)]
#[macro_export]
macro_rules! single_value {
    ($name:ident) => {
        #[doc(hidden)]
        impl $crate::__private::CacheableOutput for $name
        where
            for<'a> $crate::__private::OutputField<'a>: $crate::__private::OnePerSample<$name>,
        {
            const COLUMN: $crate::__private::ColumnType = $crate::__private::ColumnType::Struct(&[]);

            fn write(&self, _: &mut $crate::__private::ColumnWriter) -> $crate::__private::Result<()> {
                $crate::__private::never_compiled()
            }

            fn read(_: &mut $crate::__private::ColumnReader<'_>) -> $crate::__private::Result<Self> {
                $crate::__private::never_compiled()
            }
        }
    };
}

#[diagnostic::on_unimplemented(
    message = "`()` contains no features to cache",
    label = "no columns",
    note = "return the features: a struct with `#[derive(CacheableOutput)]`, a tuple, or a `tcx::Typed<f32, D1<2048>>` tensor"
)]
#[doc(hidden)]
pub trait NotEmpty<T> {}
impl<E: Element, S: Shape> NotEmpty<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl CacheableOutput for () where for<'a> OutputField<'a>: NotEmpty<()> {
    never_compiled!(CacheableOutput);
}

#[diagnostic::on_unimplemented(
    message = "`{T}` cannot be cached: it is present or absent for a whole batch, but a later batch may mix samples with and without a value",
    label = "optional for the whole batch",
    note = "presence is per sample: use a `Vec<Option<…>>`, with one entry per sample of the batch"
)]
#[doc(hidden)]
pub trait AlwaysPresent<T> {}
impl<E: Element, S: Shape> AlwaysPresent<Typed<E, S>> for OutputField<'_> {}
#[doc(hidden)]
#[rustfmt::skip]
impl<T> CacheableOutput for Option<T> where for<'a> OutputField<'a>: AlwaysPresent<Option<T>> {
    never_compiled!(CacheableOutput);
}
