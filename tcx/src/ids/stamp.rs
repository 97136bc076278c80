//! Stamps beside the ids: a changed stamp means that the source of a sample has changed under an unchanged id.

use std::marker::PhantomData;

use tcx_store::{Column, KeyType, Keys, StampType};

use crate::Result;
use crate::ids::{BytesIds, Id, KeyKind, PrefixKind};

/// Ids of type `K`, each with a stamp of type `S`: `stamp = u64` or `stamp = bytes` in the annotation, where `S` is `u64` or
/// `[u8]`.
///
/// ```
/// use tcx::{Stamped, StringIds};
///
/// # let dir = tempfile::tempdir()?;
/// # let cache = tcx::Cache::open(dir.path())?;
/// let sizes: tcx::Table<Vec<i64>, Stamped<StringIds, u64>> = tcx::Table::builder("stamped_v1").stamped().open(&cache)?;
/// sizes.put(&[("a.jpg", 1)], &vec![10])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stamped<K, S: ?Sized>(PhantomData<K>, PhantomData<S>);

/// The type of stamps: `u64`, or `[u8]` for bytes. tcx implements it for these and for nothing else.
///
/// ```
/// use tcx::{Cache, StampKind, StampedTable, Table};
///
/// /// Opens a table of lengths with stamps of either type.
/// fn lengths<S: StampKind + ?Sized>(cache: &Cache) -> tcx::Result<StampedTable<Vec<i64>, S>> {
///     Table::builder("lengths_by_stamp_v1").stamped::<S>().open(cache)
/// }
///
/// # let dir = tempfile::tempdir()?;
/// lengths::<[u8]>(&Cache::open(dir.path())?)?.put(&[("a", b"etag")], &vec![1])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait StampKind: 'static {
    /// The stamp type of the store.
    #[doc(hidden)]
    const TYPE: StampType;
    /// A borrowed stamp.
    type Ref<'a>;
    /// An owned stamp.
    type Owned: Stamp<Self> + Clone + std::fmt::Debug;

    /// Packs stamps.
    #[doc(hidden)]
    fn column<'a>(stamps: impl Iterator<Item = Self::Ref<'a>>) -> Column;

    /// Reads a stamp.
    #[doc(hidden)]
    fn unpack(stamp: &[u8]) -> Option<Self::Ref<'_>>;

    /// As [`unpack`](Self::unpack).
    #[doc(hidden)]
    fn own(stamp: &[u8]) -> Option<Self::Owned>;
}

/// The types that are stamps of type `S`: `u64` itself, and for `[u8]` everything that is an [`Id`] of bytes.
///
/// ```
/// fn is_stamp<S: tcx::StampKind + ?Sized>(_: impl tcx::Stamp<S>) {}
/// is_stamp::<u64>(7);
/// is_stamp::<[u8]>(vec![1, 2]);
/// ```
pub trait Stamp<S: StampKind + ?Sized> {
    /// The stamp itself.
    #[doc(hidden)]
    fn stamp(&self) -> S::Ref<'_>;
}

impl StampKind for u64 {
    const TYPE: StampType = StampType::Number;
    type Ref<'a> = Self;
    type Owned = Self;

    fn column<'a>(stamps: impl Iterator<Item = Self::Ref<'a>>) -> Column {
        Column::dense(&stamps.flat_map(Self::to_le_bytes).collect::<Vec<_>>())
    }

    fn unpack(stamp: &[u8]) -> Option<Self> {
        stamp.try_into().ok().map(Self::from_le_bytes)
    }

    fn own(stamp: &[u8]) -> Option<Self> {
        Self::unpack(stamp)
    }
}

impl Stamp<Self> for u64 {
    fn stamp(&self) -> Self {
        *self
    }
}

impl StampKind for [u8] {
    const TYPE: StampType = StampType::Bytes;
    type Ref<'a> = &'a Self;
    type Owned = Vec<u8>;

    fn column<'a>(stamps: impl Iterator<Item = Self::Ref<'a>>) -> Column {
        let (mut values, mut ends) = (Vec::new(), Vec::new());
        for stamp in stamps {
            values.extend_from_slice(stamp);
            ends.push(values.len());
        }
        Column::varying(values, ends)
    }

    fn unpack(stamp: &[u8]) -> Option<&Self> {
        Some(stamp)
    }

    fn own(stamp: &[u8]) -> Option<Vec<u8>> {
        Some(stamp.to_vec())
    }
}

impl<T: Id<BytesIds>> Stamp<[u8]> for T {
    fn stamp(&self) -> &[u8] {
        self.id()
    }
}

impl<K: KeyKind, S: StampKind + ?Sized> KeyKind for Stamped<K, S> {
    const KEY_TYPE: KeyType = K::KEY_TYPE;
    const STAMPS: Option<StampType> = Some(S::TYPE);
    type Plain = K;
    type Ref<'a> = (K::Ref<'a>, S::Ref<'a>);
    type Owned = (K::Owned, S::Owned);

    fn keys<'a>(ids: impl Iterator<Item = Self::Ref<'a>>, view: u32) -> tcx_store::Result<Keys> {
        let (ids, stamps): (Vec<_>, Vec<_>) = ids.unzip();
        K::keys(ids.into_iter(), view)?.with_stamps(S::column(stamps.into_iter()))
    }

    fn unpack<'a>(key: &'a [u8], stamp: Option<&'a [u8]>) -> Option<Self::Ref<'a>> {
        Some((K::unpack(key, None)?, S::unpack(stamp?)?))
    }

    fn own(key: &[u8], stamp: Option<&[u8]>) -> Option<Self::Owned> {
        Some((K::own(key, None)?, S::own(stamp?)?))
    }
}

impl<K: PrefixKind, S: StampKind + ?Sized> PrefixKind for Stamped<K, S> {
    type Prefix = K::Prefix;
}

/// Which types are the ids of a module with `stamp = …`.
#[diagnostic::on_unimplemented(
    message = "the ids of this module have stamps, found `{T}`",
    label = "expected a pair of an id and its stamp",
    note = "chosen by `stamp = …` in `#[cached_module]`, or by `TableBuilder::stamped`",
    note = "give each id with its stamp, `(id, stamp)`: a `u64`, or bytes with `stamp = bytes`",
    note = "a `FileId` is an id of strings with `stamp = bytes`"
)]
#[doc(hidden)]
pub trait StampedId<T: ?Sized>: KeyKind {
    /// The id and its stamp, if `check` accepts them.
    fn read(id: &T) -> Self::Ref<'_>;

    /// As [`Id::check`].
    fn check(id: &T) -> Result<()>;
}

impl<K: KeyKind, S: StampKind + ?Sized, T> Id<Stamped<K, S>> for T
where
    Stamped<K, S>: StampedId<T>,
{
    fn id(&self) -> <Stamped<K, S> as KeyKind>::Ref<'_> {
        Stamped::<K, S>::read(self)
    }

    fn check(&self) -> Result<()> {
        Stamped::<K, S>::check(self)
    }
}

impl<K: KeyKind, S: StampKind + ?Sized, I: Id<K>, V: Stamp<S>> StampedId<(I, V)> for Stamped<K, S> {
    fn read(id: &(I, V)) -> Self::Ref<'_> {
        (id.0.id(), id.1.stamp())
    }

    fn check(id: &(I, V)) -> Result<()> {
        id.0.check()
    }
}

impl<K: KeyKind, S: StampKind + ?Sized, T> StampedId<&T> for Stamped<K, S>
where
    Self: StampedId<T>,
{
    fn read<'i>(id: &'i &T) -> Self::Ref<'i> {
        <Self as StampedId<T>>::read(id)
    }

    fn check(id: &&T) -> Result<()> {
        <Self as StampedId<T>>::check(id)
    }
}
