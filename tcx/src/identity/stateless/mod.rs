//! What a cached module may hold: values that never change and can be distinguished.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use half::{bf16, f16};

use crate::identity::{Identity, quoted, type_names};

/// A value that never changes, and that a module may therefore hold.
///
/// Numbers, strings, paths, ranges, [`Frozen`](crate::Frozen) weights; vectors, arrays, tuples, `Option`s,
/// references, `Box`, `Rc` and `Arc` of these; sorted maps; and structs and enums with
/// [`#[derive(Stateless)]`](macro@crate::Stateless). A trait with `Stateless` as a supertrait makes its
/// objects Stateless; they enter the whole path of the type behind them (`step<dyn> = my_crate::steps::Scale`), since types
/// of one name in different modules may compute different things.
///
/// A hash map is not `Stateless`, although its values may be: its iteration order changes from run to run.
/// A `tch::Device` is, and enters nothing: outputs do not depend on where they were computed.
///
/// ```
/// use tcx::{Identity, Stateless};
///
/// let resize = ("bicubic", Some(224_u32));
/// let entries = Identity::of(&resize).to_string();
/// assert!(entries.contains("bicubic") && entries.contains("224u32"));
/// assert_ne!(entries, Identity::of(&("bicubic", Some(256_u32))).to_string());
///
/// fn holds<T: Stateless>() {}
/// holds::<std::collections::BTreeMap<String, Vec<f64>>>();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a cached module: it is not `Stateless`",
    label = "not known to be free of state",
    note = "if it is plain configuration, add `#[derive(tcx::Stateless)]` to `{Self}`; if it holds weights, wrap it in `tcx::Frozen`",
    note = "if it comes from another crate, replace it with the numbers and strings that define it",
    note = "if you know that it cannot change an output, mark the field `#[tcx(not_identity, assume_stateless)]`"
)]
pub trait Stateless {
    /// Enters everything in this value that can change an output.
    fn identity(&self, identity: &mut Identity);

    /// The path of the value's type, and which it is: of the one behind a trait object, too.
    #[doc(hidden)]
    fn __tcx_type(&self) -> (&'static str, TypeId) {
        (std::any::type_name::<Self>(), typeid::of::<Self>())
    }
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Stateless for $integer {
            fn identity(&self, identity: &mut Identity) {
                identity.value(format_args!(concat!("{}", stringify!($integer)), self));
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

/// The number.
macro_rules! not_zero {
    ($($integer:ty),*) => {$(
        impl Stateless for NonZero<$integer> {
            fn identity(&self, identity: &mut Identity) {
                self.get().identity(identity);
            }
        }
    )*};
}

not_zero!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

/// The shortest decimal that reads back as the same number; what is no number by its bits.
macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Stateless for $float {
            fn identity(&self, identity: &mut Identity) {
                if self.is_nan() {
                    identity.value(format_args!(concat!("NaN {:#x} ", stringify!($float)), self.to_bits()));
                } else if self.is_infinite() {
                    identity.value(format_args!(concat!("{} ", stringify!($float)), self));
                } else {
                    identity.value(format_args!(concat!("{}", stringify!($float)), self));
                }
            }
        }
    )*};
}

floats!(f32, f64, f16, bf16);

impl Stateless for bool {
    fn identity(&self, identity: &mut Identity) {
        identity.value(self);
    }
}

impl Stateless for char {
    fn identity(&self, identity: &mut Identity) {
        identity.value(format_args!("{} char", quoted(self.encode_utf8(&mut [0; 4]))));
    }
}

impl Stateless for () {
    fn identity(&self, identity: &mut Identity) {
        identity.value("()");
    }
}

impl Stateless for str {
    fn identity(&self, identity: &mut Identity) {
        identity.value(quoted(self));
    }
}

impl Stateless for String {
    fn identity(&self, identity: &mut Identity) {
        self.as_str().identity(identity);
    }
}

impl Stateless for Path {
    fn identity(&self, identity: &mut Identity) {
        match self.to_str() {
            Some(text) => text.identity(identity),
            // Not UTF-8: its bytes.
            None => identity.value(format_args!("path {:?}", self.as_os_str().as_encoded_bytes())),
        }
    }
}

impl Stateless for PathBuf {
    fn identity(&self, identity: &mut Identity) {
        self.as_path().identity(identity);
    }
}

impl Stateless for Duration {
    fn identity(&self, identity: &mut Identity) {
        identity.value(format_args!("{}ns", self.as_nanos()));
    }
}

#[cfg(feature = "tch")]
impl Stateless for tch::Kind {
    fn identity(&self, identity: &mut Identity) {
        identity.value(format_args!("Kind::{self:?}"));
    }
}

/// Enters nothing: a module computes the same on every device.
#[cfg(feature = "tch")]
impl Stateless for tch::Device {
    fn identity(&self, _: &mut Identity) {}
}

/// Enters the text that the dtype of tch has: the library is no part of the identity.
#[cfg(feature = "candle")]
impl Stateless for candle_core::DType {
    fn identity(&self, identity: &mut Identity) {
        let own = match self {
            Self::F16 => "Half",
            Self::BF16 => "BFloat16",
            Self::F32 => "Float",
            Self::F64 => "Double",
            Self::I16 => "Int16",
            Self::I32 => "Int",
            Self::I64 => "Int64",
            Self::U8 => "Uint8",
            other => other.as_str(),
        };
        identity.value(format_args!("Kind::{own}"));
    }
}

/// Enters nothing: a module computes the same on every device.
#[cfg(feature = "candle")]
impl Stateless for candle_core::Device {
    fn identity(&self, _: &mut Identity) {}
}

impl<T: ?Sized> Stateless for PhantomData<T> {
    fn identity(&self, identity: &mut Identity) {
        identity.distinguish(std::any::type_name::<T>(), typeid::of::<T>());
        identity.value(format_args!("PhantomData<{}>", type_names::type_name::<T>()));
    }
}

impl<T: Stateless> Stateless for Option<T> {
    fn identity(&self, identity: &mut Identity) {
        match self {
            None => identity.value("None"),
            Some(value) => {
                identity.value("Some");
                identity.field("0", value);
            }
        }
    }
}

impl<T: Stateless> Stateless for Range<T> {
    fn identity(&self, identity: &mut Identity) {
        identity.value("Range");
        identity.field("start", &self.start);
        identity.field("end", &self.end);
    }
}

impl<T: Stateless> Stateless for RangeInclusive<T> {
    fn identity(&self, identity: &mut Identity) {
        identity.value("RangeInclusive");
        identity.field("start", self.start());
        identity.field("end", self.end());
    }
}

impl<T: Stateless> Stateless for [T] {
    fn identity(&self, identity: &mut Identity) {
        identity.sequence(self.iter());
    }
}

impl<T: Stateless> Stateless for Vec<T> {
    fn identity(&self, identity: &mut Identity) {
        identity.sequence(self.iter());
    }
}

impl<T: Stateless, const N: usize> Stateless for [T; N] {
    fn identity(&self, identity: &mut Identity) {
        identity.sequence(self.iter());
    }
}

impl<T: Stateless> Stateless for BTreeSet<T> {
    fn identity(&self, identity: &mut Identity) {
        identity.sequence(self.iter());
    }
}

impl<K: Stateless, V: Stateless> Stateless for BTreeMap<K, V> {
    fn identity(&self, identity: &mut Identity) {
        let entries: Vec<(&K, &V)> = self.iter().collect();
        identity.sequence(entries.iter());
    }
}

/// A pointer is what it points to.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: Stateless + ?Sized> Stateless for $pointer {
            fn identity(&self, identity: &mut Identity) {
                identity.enter::<T>(self);
            }
        }
    )*};
}

pointers!(&T, Box<T>, Rc<T>, Arc<T>);

impl<T: Stateless + ToOwned + ?Sized> Stateless for Cow<'_, T> {
    fn identity(&self, identity: &mut Identity) {
        identity.enter::<T>(self);
    }
}

macro_rules! tuple {
    ($($part:ident $index:tt),*) => {
        impl<$($part: Stateless),*> Stateless for ($($part,)*) {
            fn identity(&self, identity: &mut Identity) {
                $(identity.field(stringify!($index), &self.$index);)*
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests;
