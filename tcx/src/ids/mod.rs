//! The ids of samples: which types a module accepts, decided by `key = …` in its annotation.

pub(crate) mod content;
pub(crate) mod file;
mod integers;
pub(crate) mod name;
mod paths;
mod pointers;
pub(crate) mod stamp;

use tcx_store::{KeyType, Keys, StampType};

use crate::{Error, Result};

/// The type of the ids of a module or a table: [`StringIds`], [`I64Ids`], [`BytesIds`], or one of these with stamps
/// ([`Stamped`](crate::Stamped)). tcx implements it for these and for nothing else. Code that is generic over modules or tables
/// uses it as a bound.
///
/// ```
/// use tcx::{CacheableOutput, KeyKind, Table};
///
/// /// Works with tables of all ids.
/// fn rows<T: CacheableOutput, K: KeyKind>(table: &Table<T, K>) -> u64 {
///     table.stats().rows
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let lengths: Table<Vec<i64>, tcx::StringIds> = tcx::Cache::open(dir.path())?.table("kinds_v1")?;
/// assert_eq!(rows(&lengths), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyKind: Sized + 'static {
    /// The key type of the store.
    #[doc(hidden)]
    const KEY_TYPE: KeyType;
    /// The type of the stamps beside the ids, if there are any.
    #[doc(hidden)]
    const STAMPS: Option<StampType> = None;
    /// The ids without their stamps.
    type Plain: KeyKind;
    /// A borrowed id.
    type Ref<'a>;
    /// An owned id.
    type Owned: Id<Self> + Clone + std::fmt::Debug;

    /// Packs ids.
    #[doc(hidden)]
    fn keys<'a>(ids: impl Iterator<Item = Self::Ref<'a>>, view: u32) -> tcx_store::Result<Keys>;

    /// Packs the ids of a batch.
    #[doc(hidden)]
    fn pack<I: Id<Self>>(ids: &[I], view: u32) -> Result<Keys> {
        // Most ids have nothing to check: the compiler then removes this loop.
        ids.iter().try_for_each(Id::check)?;
        Self::keys(ids.iter().map(Id::id), view).map_err(|error| Error::batch(format!("{error:#}")))
    }

    /// Reads an id from the bytes of a key, and of its stamp if it has one.
    #[doc(hidden)]
    fn unpack<'a>(key: &'a [u8], stamp: Option<&'a [u8]>) -> Option<Self::Ref<'a>>;

    /// As [`unpack`](Self::unpack).
    #[doc(hidden)]
    fn own(key: &[u8], stamp: Option<&[u8]>) -> Option<Self::Owned>;
}

/// Ids that have a prefix: [`StringIds`] and [`BytesIds`], for
/// [`Cached::invalidate_prefix`](crate::Cached::invalidate_prefix).
///
/// ```
/// use tcx::{CachedModule, PrefixKind};
///
/// /// Forgets the samples of a folder, whatever the module.
/// fn forget<M: CachedModule<Key = tcx::StringIds>>(module: &tcx::Cached<M>, folder: &str) -> tcx::Result<()> {
///     module.invalidate_prefix(folder)
/// }
/// # fn is_prefix<K: PrefixKind<Prefix = str>>() {}
/// # is_prefix::<tcx::StringIds>();
/// ```
#[diagnostic::on_unimplemented(
    message = "the ids of this module are `i64`, which have no prefix",
    note = "use `invalidate_where`, or `invalidate` with the ids themselves"
)]
pub trait PrefixKind: KeyKind {
    /// A prefix of an id.
    type Prefix: ?Sized + AsRef<[u8]>;
}

impl PrefixKind for StringIds {
    type Prefix = str;
}

impl PrefixKind for BytesIds {
    type Prefix = [u8];
}

/// Ids that are strings: the default.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let table: tcx::Table<Vec<i64>, tcx::StringIds> = tcx::Cache::open(dir.path())?.table("strings_v1")?;
/// table.put(&["a"], &vec![1])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum StringIds {}

/// Ids that are integers: `#[cached_module(key = i64)]`.
///
/// ```
/// /// Computes samples by their numbers, with any module that has numbers.
/// fn first<M>(module: &tcx::Cached<M>, input: &M::Input) -> tcx::Result<M::Output>
/// where
///     M: tcx::CachedModule<Key = tcx::I64Ids>,
/// {
///     module.forward(&[0], input)
/// }
/// ```
#[derive(Debug)]
pub enum I64Ids {}

/// Ids that are bytes: `#[cached_module(key = bytes)]`.
///
/// ```
/// /// Whether a module whose ids are bytes has a row for this hash.
/// fn has<M: tcx::CachedModule<Key = tcx::BytesIds>>(module: &tcx::Cached<M>, hash: [u8; 32]) -> tcx::Result<bool> {
///     Ok(module.coverage(&[hash])?.is_complete())
/// }
/// ```
#[derive(Debug)]
pub enum BytesIds {}

impl KeyKind for StringIds {
    const KEY_TYPE: KeyType = KeyType::Text;
    type Plain = Self;
    type Ref<'a> = &'a str;
    type Owned = String;

    fn keys<'a>(ids: impl Iterator<Item = Self::Ref<'a>>, view: u32) -> tcx_store::Result<Keys> {
        Keys::text(ids, view)
    }

    fn unpack<'a>(key: &'a [u8], _: Option<&'a [u8]>) -> Option<&'a str> {
        std::str::from_utf8(key).ok()
    }

    fn own(key: &[u8], stamp: Option<&[u8]>) -> Option<String> {
        Self::unpack(key, stamp).map(str::to_owned)
    }
}

impl KeyKind for I64Ids {
    const KEY_TYPE: KeyType = KeyType::Int;
    type Plain = Self;
    type Ref<'a> = i64;
    type Owned = i64;

    fn keys<'a>(ids: impl Iterator<Item = Self::Ref<'a>>, view: u32) -> tcx_store::Result<Keys> {
        Ok(Keys::ints(ids, view))
    }

    fn unpack<'a>(key: &'a [u8], _: Option<&'a [u8]>) -> Option<i64> {
        key.try_into().ok().map(i64::from_le_bytes)
    }

    fn own(key: &[u8], stamp: Option<&[u8]>) -> Option<i64> {
        Self::unpack(key, stamp)
    }
}

impl KeyKind for BytesIds {
    const KEY_TYPE: KeyType = KeyType::Bytes;
    type Plain = Self;
    type Ref<'a> = &'a [u8];
    type Owned = Vec<u8>;

    fn keys<'a>(ids: impl Iterator<Item = Self::Ref<'a>>, view: u32) -> tcx_store::Result<Keys> {
        Keys::bytes(ids, view)
    }

    fn unpack<'a>(key: &'a [u8], _: Option<&'a [u8]>) -> Option<&'a [u8]> {
        Some(key)
    }

    fn own(key: &[u8], stamp: Option<&[u8]>) -> Option<Vec<u8>> {
        Self::unpack(key, stamp).map(<[u8]>::to_vec)
    }
}

/// The id of a sample, for a module whose ids are `K`.
///
/// | `key` in the annotation | types of ids |
/// |---|---|
/// | none, or `String` | `String`, `&str`, [`Path`](std::path::Path), `PathBuf`, [`ContentId`](crate::ContentId) |
/// | `i64` | `i64`, and `i32`, `u32`, `u64`, `usize`, which are converted |
/// | `bytes` | `Vec<u8>`, `&[u8]`, `[u8; N]`, `ContentId`, and `uuid::Uuid` with the feature `uuid` |
///
/// Each also behind a reference, `Box`, `Rc`, `Arc` or `Cow`. With stamps, ids are pairs of one of these and its stamp, or a
/// [`FileId`](crate::FileId).
///
/// - A path is the text that it consists of, as it is given: `a.png` and `./a.png` are two ids. A path that is not UTF-8 is an
///   error that names it.
/// - An integer is the same id whatever its type is. One that an `i64` cannot hold is an error that names it.
/// - A UUID is its 16 bytes, in the order in which it is written.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let table = tcx::Cache::open(dir.path())?.table::<Vec<i64>>("ids_v1")?;
/// table.put(&["a"], &vec![1])?;
/// // The same sample, however its id is held.
/// assert_eq!(table.get(&[String::from("a")])?, Some(vec![1]));
/// assert_eq!(table.get(&[&std::sync::Arc::<str>::from("a")])?, Some(vec![1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An id has at least one byte and at most 4,096, and is compared byte by byte: `"Cat.jpg"` and `"cat.jpg"` are two samples. If
/// an id occurs twice in a batch, it is one sample, computed once from the inputs at its first position
/// ([`CacheBuilder::refuse_repeated_ids`](crate::CacheBuilder::refuse_repeated_ids) refuses other inputs).
pub trait Id<K: KeyKind> {
    /// The id itself, if [`check`](Self::check) accepts it; anything otherwise.
    #[doc(hidden)]
    fn id(&self) -> K::Ref<'_>;

    /// Whether it can be an id: a value of most types always can.
    ///
    /// # Errors
    ///
    /// Returns an error that names the id if it is a path that is not UTF-8, or an integer that is too large.
    #[doc(hidden)]
    fn check(&self) -> Result<()>;
}

// Ids of each kind have a trait of their own, so that a wrong one has a message of its own. It is a trait of the kind,
// not of the id: the compiler would report `Id` otherwise.

/// Which types are the ids of a module whose ids are strings.
#[diagnostic::on_unimplemented(
    message = "the ids of this module are strings, found `{T}`",
    label = "expected `String`, `&str` or a path",
    note = "strings are the default; `#[cached_module(key = i64)]` and `#[cached_module(key = bytes)]` choose others; for a table, `Table::builder(\"…\").keys::<tcx::I64Ids>()`",
    note = "a `Uuid` needs `key = bytes`, a `FileId` needs `stamp = bytes`",
    note = "convert the ids, or choose another `key`, which gives the module a new, empty cache"
)]
#[doc(hidden)]
pub trait StringId<T: ?Sized> {
    /// The id itself, if `check` accepts it.
    fn read(id: &T) -> &str;

    /// As [`Id::check`].
    fn check(_: &T) -> Result<()> {
        Ok(())
    }
}

impl<T> Id<StringIds> for T
where
    StringIds: StringId<T>,
{
    fn id(&self) -> &str {
        StringIds::read(self)
    }

    fn check(&self) -> Result<()> {
        StringIds::check(self)
    }
}

/// Which types are the ids of a module with `key = i64`.
#[diagnostic::on_unimplemented(
    message = "the ids of this module are `i64`, found `{T}`",
    label = "expected an integer of at most 64 bits",
    note = "chosen by `#[cached_module(key = i64)]`; without `key`, ids are strings",
    note = "`i64`, `i32`, `u32`, `u64` and `usize` are ids; write `id as i64` for another integer that fits",
    note = "convert the ids, or choose another `key`, which gives the module a new, empty cache"
)]
#[doc(hidden)]
pub trait I64Id<T: ?Sized> {
    /// The id itself, if `check` accepts it.
    fn read(id: &T) -> i64;

    /// As [`Id::check`].
    fn check(_: &T) -> Result<()> {
        Ok(())
    }
}

impl<T> Id<I64Ids> for T
where
    I64Ids: I64Id<T>,
{
    fn id(&self) -> i64 {
        I64Ids::read(self)
    }

    fn check(&self) -> Result<()> {
        I64Ids::check(self)
    }
}

/// Which types are the ids of a module with `key = bytes`.
#[diagnostic::on_unimplemented(
    message = "the ids of this module are bytes, found `{T}`",
    label = "expected `Vec<u8>`, `&[u8]` or `[u8; N]`",
    note = "chosen by `#[cached_module(key = bytes)]`; without `key`, ids are strings",
    note = "convert the ids, or choose another `key`, which gives the module a new, empty cache"
)]
#[doc(hidden)]
pub trait BytesId<T: ?Sized> {
    /// The id itself.
    fn read(id: &T) -> &[u8];
}

impl<T> Id<BytesIds> for T
where
    BytesIds: BytesId<T>,
{
    fn id(&self) -> &[u8] {
        BytesIds::read(self)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl StringId<str> for StringIds {
    fn read(id: &str) -> &str {
        id
    }
}

impl StringId<String> for StringIds {
    fn read(id: &String) -> &str {
        id
    }
}

impl I64Id<i64> for I64Ids {
    fn read(id: &i64) -> i64 {
        *id
    }
}

impl BytesId<[u8]> for BytesIds {
    fn read(id: &[u8]) -> &[u8] {
        id
    }
}

impl BytesId<Vec<u8>> for BytesIds {
    fn read(id: &Vec<u8>) -> &[u8] {
        id
    }
}

impl<const N: usize> BytesId<[u8; N]> for BytesIds {
    fn read(id: &[u8; N]) -> &[u8] {
        id
    }
}

#[cfg(feature = "uuid")]
impl BytesId<uuid::Uuid> for BytesIds {
    fn read(id: &uuid::Uuid) -> &[u8] {
        id.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

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
