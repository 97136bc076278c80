//! What the code that the macros generate names. No part of the public interface: it changes with any
//! release.

use std::marker::PhantomData;

pub use core::option::Option;
pub use core::primitive::{bool, f32, f64, i8, i16, i32, i64, i128, str, u8, u64};
pub use core::{concat, file, fmt, line};

pub use half::{bf16, f16};
pub use inventory;
pub use std::vec::Vec;
pub use tcx_store::{Column, ColumnType, DYNAMIC_DIM, Field};

pub use crate::diagnostics::{Concurrent, OnePerSample, OutputField};
pub use crate::error::Result;
pub use crate::identity::Identity;
pub use crate::identity::stateless::Stateless;
pub use crate::ids::stamp::Stamped;
pub use crate::ids::{BytesIds, I64Ids, StringIds};
pub use crate::module::extractor::{CachedModule, Extractor};
pub use crate::module::registry::Registered;
pub use crate::output::leaf::{Dense, TensorField, Varying};
pub use crate::output::part::{AnyPart, OutputPart, SkippedPart, TensorPart, never_compiled};
pub use crate::output::shape::{ColumnShape, assert_column_shape};
pub use crate::output::skipped::Skipped;
pub use crate::output::typed::{D0, D1, D2, D3, D4, D5};
pub use crate::output::value::{OptionalValue, SampleValue, Variants, variants};
pub use crate::output::{CacheableOutput, ColumnReader, ColumnWriter};
pub use crate::tensor::{AsTensor, DefaultTensor as Tensor, Fixed, NewMemory, Row};
pub use crate::{register_module, single_value};

use crate::output::shape::check_column;
use crate::tensor::assert_fits;

/// Compiles only for an output; the macros call it with the tokens of a field's type.
pub const fn assert_output<T: CacheableOutput>() {
    check_column(&T::COLUMN);
}

/// Compiles only for a type of field that `#[tensor(..)]` can store, and whose tensors can hold what it declares.
pub const fn assert_column<T: TensorField<C>, C>() {
    if let Some((fixed, dtype, rank)) = T::FIXED {
        assert_fits(fixed, dtype, rank);
    }
}

/// Compiles only for what can fill a skipped field.
pub const fn assert_skipped<T: Skipped>() {}

/// Compiles only for what a cached module may hold.
pub const fn assert_stateless<T: Stateless + ?Sized>() {}

/// In the place of the type of a field that the compiler has left out.
#[derive(Debug)]
pub struct Absent<T: ?Sized>(PhantomData<T>);

impl<T: ?Sized> Stateless for Absent<T> {
    fn identity(&self, _: &mut Identity) {}
}

/// A field of a module, about to be entered into its identity. `(&Enter(&field)).__tcx_enter(..)` compiles for every type:
/// for those that are not Stateless, the macros emit an assertion that says so once, at the field.
#[derive(Debug)]
pub struct Enter<'a, T: ?Sized>(pub &'a T);

/// What `Enter` does for Stateless types. The compiler finds this method first.
pub trait EnterStateless {
    /// Enters the field.
    fn __tcx_enter(&self, name: &str, identity: &mut Identity);
}

impl<T: Stateless + ?Sized> EnterStateless for Enter<'_, T> {
    fn __tcx_enter(&self, name: &str, identity: &mut Identity) {
        identity.field(name, self.0);
    }
}

/// What `Enter` does for all others, one reference further away.
pub trait EnterAny {
    /// Never runs: the field's assertion does not compile.
    fn __tcx_enter(&self, name: &str, identity: &mut Identity);
}

impl<T: ?Sized> EnterAny for &Enter<'_, T> {
    fn __tcx_enter(&self, _: &str, _: &mut Identity) {
        never_compiled()
    }
}

/// Enters a field with `#[tcx(assume_stateless)]`: not its value, only the fact that the value is left out.
pub fn assumed_stateless(identity: &mut Identity, name: &str) {
    identity.field(name, &Assumed);
}

struct Assumed;

impl Stateless for Assumed {
    fn identity(&self, identity: &mut Identity) {
        identity.value("assumed stateless");
    }
}
