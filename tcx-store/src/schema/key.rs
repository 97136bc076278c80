//! Keys: the caller's stable sample ids, packed for a batch, each with its view and its hash.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::schema::column::Column;
use crate::schema::leaf::{DType, LeafKind};
use crate::sys::bytes::{Random, u64_at};

/// The longest key in bytes.
pub const MAX_KEY_BYTES: usize = 4096;

/// What the keys of a cache are. Part of its identity: a cache has keys of one type.
///
/// ```
/// use tcx_store::{KeyType, Keys};
///
/// let keys = [Keys::text(["a"], 0)?, Keys::ints([1], 0), Keys::bytes([[0, 1]], 0)?];
/// assert_eq!(keys.map(|keys| keys.key_type()), [KeyType::Text, KeyType::Int, KeyType::Bytes]);
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum KeyType {
    /// UTF-8 strings.
    Text = 1,
    /// Signed 64-bit integers.
    Int = 2,
    /// Bytes, a UUID for instance.
    Bytes = 3,
}

impl KeyType {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Text, Self::Int, Self::Bytes].into_iter().find(|key| *key as u8 == code)
    }

    /// The name as it is written in `#[cached_module(key = i64)]`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "String",
            Self::Int => "i64",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The hash of a key and its view, XXH3-64 of the key's bytes. Two keys may share it: the key itself decides.
pub(crate) type KeyHash = u64;

/// Decides which keys share a hash. Who chooses keys cannot choose many that do, as long as the seed is not known to them: a search among
/// these would look at each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeySeed(u64);

impl KeySeed {
    /// That of hashes on disk which are the same in every cache.
    pub(crate) const NONE: Self = Self(0);

    /// That of the index of a cache.
    pub(crate) fn of_instance(instance: Random) -> Self {
        Self(u64_at(&instance.0, 0).unwrap_or_default())
    }

    /// That of hashes in the memory of this process.
    pub(crate) fn of_process() -> Self {
        static SEED: LazyLock<KeySeed> = LazyLock::new(|| KeySeed(RandomState::new().hash_one(0)));
        *SEED
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn hash(self, key: &[u8], view: u32) -> KeyHash {
        xxh3_64_with_seed(key, self.0 ^ u64::from(view))
    }
}

/// The hashes of the keys of rows, in the order of the rows.
#[derive(Clone, Debug)]
pub(crate) struct KeyHashes {
    pub(crate) seed: KeySeed,
    pub(crate) hashes: Vec<KeyHash>,
}

/// The keys of a batch, in the order asked, packed into one buffer.
///
/// ```
/// let keys = tcx_store::Keys::text(["cat.jpg", "dog.jpg"], 0)?;
/// assert_eq!(keys.len(), 2);
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Keys {
    key_type: KeyType,
    view: u32,
    bytes: Vec<u8>,
    /// Where each key begins in the bytes, and where the last one ends.
    starts: Vec<usize>,
    /// What the caller says of the source of each sample.
    stamps: Option<Column>,
}

impl Keys {
    /// String keys. `view` distinguishes the variants of a sample (its augmentations); 0 is the sample itself.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is empty or longer than [`MAX_KEY_BYTES`].
    pub fn text<S: AsRef<str>>(keys: impl IntoIterator<Item = S>, view: u32) -> Result<Self> {
        let (mut packed, keys) = Self::with_room(KeyType::Text, view, keys);
        for key in keys {
            packed.push(key.as_ref().as_bytes())?;
        }
        Ok(packed)
    }

    /// Integer keys.
    pub fn ints(keys: impl IntoIterator<Item = i64>, view: u32) -> Self {
        let (mut packed, keys) = Self::with_room(KeyType::Int, view, keys);
        for key in keys {
            packed.push_checked(&key.to_le_bytes());
        }
        packed
    }

    /// Keys of bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is empty or longer than [`MAX_KEY_BYTES`].
    pub fn bytes<S: AsRef<[u8]>>(keys: impl IntoIterator<Item = S>, view: u32) -> Result<Self> {
        let (mut packed, keys) = Self::with_room(KeyType::Bytes, view, keys);
        for key in keys {
            packed.push(key.as_ref())?;
        }
        Ok(packed)
    }

    /// None yet, with room for these, as far as their number is known, and most of them short.
    fn with_room<I: IntoIterator>(key_type: KeyType, view: u32, keys: I) -> (Self, I::IntoIter) {
        let keys = keys.into_iter();
        let count = keys.size_hint().0;
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        let bytes = Vec::with_capacity(count * 16);
        (Self { key_type, view, bytes, starts, stamps: None }, keys)
    }

    #[inline]
    fn push(&mut self, key: &[u8]) -> Result<()> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(self.refused(key));
        }
        self.push_checked(key);
        Ok(())
    }

    /// The error of the next key, which is not valid.
    #[cold]
    fn refused(&self, key: &[u8]) -> Error {
        let position = self.len();
        if key.is_empty() {
            let message = format!("id {position} of the batch is empty: every sample needs an id of its own");
            return Error::invalid(message);
        }
        let start = String::from_utf8_lossy(&key[..40]).into_owned();
        Error::invalid(format!(
            "id {position} of the batch (`{start}…`) has {} bytes, expected at most {MAX_KEY_BYTES}: use a hash of it",
            key.len()
        ))
    }

    #[inline]
    fn push_checked(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.starts.push(self.bytes.len());
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the keys are.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// The view that all keys of the batch share.
    pub fn view(&self) -> u32 {
        self.view
    }

    /// The bytes of a key; an integer is its eight bytes, the lowest first.
    ///
    /// # Panics
    ///
    /// If `position` is not below [`len`](Self::len).
    pub fn key(&self, position: usize) -> &[u8] {
        self.slice(position..position + 1)
    }

    /// The bytes of the keys of a range, one after the other.
    pub(crate) fn slice(&self, positions: Range<usize>) -> &[u8] {
        &self.bytes[self.starts[positions.start]..self.starts[positions.end]]
    }

    /// The hash of a key.
    #[inline]
    pub(crate) fn hash(&self, position: usize, seed: KeySeed) -> KeyHash {
        seed.hash(self.key(position), self.view)
    }

    /// A key, for a map in memory.
    pub(crate) fn hashed(&self, position: usize) -> HashedKey<'_> {
        HashedKey { hash: self.hash(position, KeySeed::of_process()), key: self.key(position) }
    }

    /// The keys at `positions`.
    ///
    /// ```
    /// let keys = tcx_store::Keys::ints([1, 2, 3], 0).select(&[2]);
    /// assert_eq!(keys.key(0), 3_i64.to_le_bytes());
    /// ```
    ///
    /// # Panics
    ///
    /// If a position is not below [`len`](Self::len).
    #[must_use]
    pub fn select(&self, positions: &[usize]) -> Self {
        let (mut packed, places) = Self::with_room(self.key_type, self.view, positions);
        for &position in places {
            packed.push_checked(self.key(position));
        }
        // Stamps that are all equally long are numbers.
        let kind = LeafKind::Dense { dtype: DType::I64, shape: Vec::new() };
        packed.stamps = self.stamps.as_ref().map(|stamps| stamps.select(positions, &kind));
        packed
    }

    pub(crate) fn stamps(&self) -> Option<&Column> {
        self.stamps.as_ref()
    }

    pub(crate) fn stamped(self, stamps: Column) -> Self {
        Self { stamps: Some(stamps), ..self }
    }

    /// The stamps, to be stored beside the rows.
    pub(crate) fn take_stamps(&mut self) -> Option<Column> {
        self.stamps.take()
    }

    /// The memory the keys take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.len() * size_of::<usize>()
    }
}

/// A key with its hash, which is not made again where keys are compared: in maps of this [`TakeBits`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashedKey<'a> {
    hash: KeyHash,
    key: &'a [u8],
}

impl Hash for HashedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Key hashes are random bits already.
pub(crate) type TakeBits = BuildHasherDefault<FirstBits>;

#[derive(Default)]
pub(crate) struct FirstBits(u64);

impl Hasher for FirstBits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |bits| u64::from_le_bytes(*bits));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Whether two keys are one. Most are short, and a call would take longer than the look.
#[inline]
pub(crate) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    match (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(first), Some(last), Some(other_first), Some(other_last)) if a.len() <= 16 => {
            a.len() == b.len() && first == other_first && last == other_last
        }
        _ => a == b,
    }
}
