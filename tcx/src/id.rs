//! The ids of samples: which types a module accepts, decided by `key = …` in its annotation.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use tcx_store::{KeyType, Keys};

/// What the ids of a module are.
#[doc(hidden)]
pub trait KeyKind: Sized + 'static {
    /// How the store calls it.
    const KEY_TYPE: KeyType;
    /// What one id is read as.
    type Ref<'a>;

    /// Packs the ids of a batch.
    fn pack<I: Id<Self>>(ids: &[I], view: u32) -> tcx_store::Result<Keys>;
}

/// Strings: the default.
#[doc(hidden)]
#[derive(Debug)]
pub enum StringIds {}

/// `key = i64`.
#[doc(hidden)]
#[derive(Debug)]
pub enum I64Ids {}

/// `key = bytes`.
#[doc(hidden)]
#[derive(Debug)]
pub enum BytesIds {}

impl KeyKind for StringIds {
    const KEY_TYPE: KeyType = KeyType::Text;
    type Ref<'a> = &'a str;

    fn pack<I: Id<Self>>(ids: &[I], view: u32) -> tcx_store::Result<Keys> {
        Keys::text(ids.iter().map(Id::id), view)
    }
}

impl KeyKind for I64Ids {
    const KEY_TYPE: KeyType = KeyType::Int;
    type Ref<'a> = i64;

    fn pack<I: Id<Self>>(ids: &[I], view: u32) -> tcx_store::Result<Keys> {
        Ok(Keys::ints(ids.iter().map(Id::id), view))
    }
}

impl KeyKind for BytesIds {
    const KEY_TYPE: KeyType = KeyType::Bytes;
    type Ref<'a> = &'a [u8];

    fn pack<I: Id<Self>>(ids: &[I], view: u32) -> tcx_store::Result<Keys> {
        Keys::bytes(ids.iter().map(Id::id), view)
    }
}

/// The id of a sample, for a module whose ids are `K`.
///
/// Strings (`String`, `&str`, …) unless `#[cached_module(key = i64)]` or `#[cached_module(key = bytes)]`
/// says otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an id of this module: its ids are `{K}`",
    label = "wrong type of id",
    note = "`StringIds`: `String` or `&str`, the default; `I64Ids`: `i64`, chosen by `#[cached_module(key = i64)]`; `BytesIds`: `Vec<u8>`, `&[u8]` or `[u8; N]`, chosen by `#[cached_module(key = bytes)]`",
    note = "convert the ids, or choose another `key` for the module (which gives it a new, empty cache)"
)]
pub trait Id<K: KeyKind> {
    /// The id itself.
    #[doc(hidden)]
    fn id(&self) -> K::Ref<'_>;
}

impl Id<StringIds> for str {
    fn id(&self) -> &str {
        self
    }
}

impl Id<StringIds> for String {
    fn id(&self) -> &str {
        self
    }
}

impl Id<I64Ids> for i64 {
    fn id(&self) -> i64 {
        *self
    }
}

impl Id<BytesIds> for [u8] {
    fn id(&self) -> &[u8] {
        self
    }
}

impl Id<BytesIds> for Vec<u8> {
    fn id(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> Id<BytesIds> for [u8; N] {
    fn id(&self) -> &[u8] {
        self
    }
}

/// A pointer to an id is an id.
macro_rules! pointer {
    ($($pointer:ty),*) => {$(
        impl<K: KeyKind, T: Id<K> + ?Sized> Id<K> for $pointer {
            fn id(&self) -> K::Ref<'_> {
                T::id(self)
            }
        }
    )*};
}

pointer!(&T, Box<T>, Rc<T>, Arc<T>);

impl<K: KeyKind, T: Id<K> + ToOwned + ?Sized> Id<K> for Cow<'_, T> {
    fn id(&self) -> K::Ref<'_> {
        T::id(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<I: Id<StringIds>>(ids: &[I]) -> Vec<String> {
        let keys = StringIds::pack(ids, 0).unwrap();
        (0..keys.len()).map(|i| String::from_utf8_lossy(keys.key(i)).into_owned()).collect()
    }

    #[test]
    fn every_kind_of_string_is_the_same_id() {
        let expected = ["a", "b"];
        assert_eq!(text(&["a", "b"]), expected);
        assert_eq!(text(&["a".to_owned(), "b".to_owned()]), expected);
        assert_eq!(text(&[&"a".to_owned(), &"b".to_owned()]), expected);
        assert_eq!(text::<Box<str>>(&["a".into(), "b".into()]), expected);
        assert_eq!(text::<Arc<str>>(&["a".into(), "b".into()]), expected);
        assert_eq!(text::<Cow<'_, str>>(&["a".into(), Cow::Owned("b".to_owned())]), expected);
    }

    #[test]
    fn integers_and_bytes_keep_their_bytes() {
        let keys = I64Ids::pack(&[-2i64], 7).unwrap();
        assert_eq!((keys.key(0), keys.view()), ((-2i64).to_le_bytes().as_slice(), 7));
        assert_eq!(BytesIds::pack(&[[1u8, 0, 2]], 0).unwrap().key(0), [1, 0, 2]);
        assert_eq!(BytesIds::pack(&[vec![1u8, 0, 2]], 0).unwrap().key(0), [1, 0, 2]);
    }
}
