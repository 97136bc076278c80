//! Pointers to ids are ids: references, `Box`, `Rc`, `Arc` and `Cow`.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use super::{BytesId, BytesIds, I64Id, I64Ids, StringId, StringIds};
use crate::Result;

/// A pointer to an id is an id.
macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<T: ?Sized> StringId<$pointer> for StringIds
        where
            Self: StringId<T>,
        {
            fn read(id: &$pointer) -> &str {
                <Self as StringId<T>>::read(id)
            }

            fn check(id: &$pointer) -> Result<()> {
                <Self as StringId<T>>::check(id)
            }
        }

        impl<T: ?Sized> I64Id<$pointer> for I64Ids
        where
            Self: I64Id<T>,
        {
            fn read(id: &$pointer) -> i64 {
                <Self as I64Id<T>>::read(id)
            }

            fn check(id: &$pointer) -> Result<()> {
                <Self as I64Id<T>>::check(id)
            }
        }

        impl<T: ?Sized> BytesId<$pointer> for BytesIds
        where
            Self: BytesId<T>,
        {
            fn read(id: &$pointer) -> &[u8] {
                <Self as BytesId<T>>::read(id)
            }
        }
    )*};
}

pointers!(Box<T>, Rc<T>, Arc<T>);

impl<T: ?Sized> StringId<&T> for StringIds
where
    Self: StringId<T>,
{
    fn read<'i>(id: &'i &T) -> &'i str {
        <Self as StringId<T>>::read(id)
    }

    fn check(id: &&T) -> Result<()> {
        <Self as StringId<T>>::check(id)
    }
}

impl<T: ?Sized> I64Id<&T> for I64Ids
where
    Self: I64Id<T>,
{
    fn read(id: &&T) -> i64 {
        <Self as I64Id<T>>::read(id)
    }

    fn check(id: &&T) -> Result<()> {
        <Self as I64Id<T>>::check(id)
    }
}

impl<T: ?Sized> BytesId<&T> for BytesIds
where
    Self: BytesId<T>,
{
    fn read<'i>(id: &'i &T) -> &'i [u8] {
        <Self as BytesId<T>>::read(id)
    }
}

impl<T: ToOwned + ?Sized> StringId<Cow<'_, T>> for StringIds
where
    Self: StringId<T>,
{
    fn read<'i>(id: &'i Cow<'_, T>) -> &'i str {
        <Self as StringId<T>>::read(id)
    }

    fn check(id: &Cow<'_, T>) -> Result<()> {
        <Self as StringId<T>>::check(id)
    }
}

impl<T: ToOwned + ?Sized> BytesId<Cow<'_, T>> for BytesIds
where
    Self: BytesId<T>,
{
    fn read<'i>(id: &'i Cow<'_, T>) -> &'i [u8] {
        <Self as BytesId<T>>::read(id)
    }
}
