//! A table of tombstones: for each key and prefix the newest change that names it. Probed straight from its bytes, so
//! that any number of them takes no heap.
//!
//! Entries are in ascending order of their hashes. Hashes are spread evenly, so that the place of one is known
//! within a few √n before the first look.

use std::ops::Deref;

use super::whole::Whole;
use super::{
    Change, KIND_MERGED, KIND_MERGED_OF_SEGMENTS, KIND_MERGED_OF_VIEWS, KIND_TOMBSTONE,
    KIND_TOMBSTONE_OF_SEGMENTS, KIND_TOMBSTONE_OF_VIEWS, decode,
};
use crate::schema::key::{KeyHash, KeySeed};
use crate::sys::bytes::{Cursor, Random, u64_at};
use crate::sys::mmap::Mapped;

/// Bytes before the lengths of prefixes.
const FIXED: usize = 32;
/// Bytes of an entry: hash, number, place of the name.
pub(super) const ENTRY: usize = 24;
/// Marks the place of a prefix's name.
const PREFIX: u64 = 1 << 63;
/// Marks the place of the name of a key in one view, behind which the view is stored; only in tables of the kinds that
/// have such entries.
const VIEW: u64 = 1 << 62;
/// Prefixes are hashed with a seed that is no view's, so that a prefix is not found as a key.
const PREFIX_SEED: u64 = u64::MAX;

/// The hash of the entry of a key, whatever its view.
pub(crate) fn key_hash(key: &[u8]) -> KeyHash {
    KeySeed::NONE.hash(key, 0)
}

/// The hash of the entry of a key in one view.
pub(crate) fn view_hash(key: &[u8], view: u32) -> KeyHash {
    KeySeed::NONE.hash(key, view)
}

pub(super) fn prefix_hash(prefix: &[u8]) -> KeyHash {
    xxhash_rust::xxh3::xxh3_64_with_seed(prefix, PREFIX_SEED)
}

/// One name of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) hash: KeyHash,
    /// The newest change that names it.
    pub(super) number: u64,
    pub(super) named: Named,
    pub(super) name: &'a [u8],
}

/// What an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A key, in all its views.
    Key,
    /// Every key that begins so.
    Prefix,
    /// A key in this view only.
    View(u32),
}

/// A key in a view, as tables are asked for it.
#[derive(Clone, Copy)]
pub(super) struct HashedKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) view: u32,
    /// The key's [`key_hash`].
    hash: KeyHash,
    /// Its [`view_hash`].
    view_hash: KeyHash,
}

impl<'a> HashedKey<'a> {
    pub(super) fn new(key: &'a [u8], view: u32) -> Self {
        let hash = key_hash(key);
        Self { key, view, hash, view_hash: if view == 0 { hash } else { view_hash(key, view) } }
    }
}

/// The bytes of a change: those of its file, or where that could not be written or mapped, a copy.
#[derive(Debug)]
pub(super) enum ChangeBytes {
    Mapped(Mapped),
    Heap(Vec<u8>),
}

impl Deref for ChangeBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Heap(bytes) => bytes,
        }
    }
}

/// A tombstone, or the merged tombstones up to a number.
#[derive(Debug)]
pub(crate) struct TombstoneTable {
    bytes: ChangeBytes,
    /// The number of the change, or the last that was merged.
    pub(super) number: u64,
    /// What its writer has drawn; of a merged file the instance.
    pub(super) nonce: Random,
    /// The instance whose tombstones are merged here; `None` for a single change.
    pub(super) merged_in: Option<Random>,
    /// The newest tombstone for everything; 0 without one.
    pub(super) all: u64,
    /// The newest number of any entry or of `all`.
    pub(super) newest: u64,
    /// Which segments are dead, whatever their keys.
    pub(super) whole: Whole,
    /// The lengths that prefixes have, ascending.
    lengths: Vec<u16>,
    /// Whether entries may name a key in one view.
    pub(super) is_of_views: bool,
    len: usize,
    entries: usize,
    names: usize,
}

impl TombstoneTable {
    /// Reads and verifies the change or merged file `number`.
    ///
    /// # Errors
    ///
    /// Returns a description of what is wrong with the bytes.
    pub(super) fn open(number: u64, bytes: ChangeBytes) -> Result<Self, String> {
        let Change { kind, nonce, payload } = decode(number, &bytes)?;
        let (is_merged, is_of_views) = match kind {
            KIND_TOMBSTONE | KIND_TOMBSTONE_OF_SEGMENTS => (false, false),
            KIND_MERGED => (true, false),
            KIND_TOMBSTONE_OF_VIEWS => (false, true),
            KIND_MERGED_OF_VIEWS | KIND_MERGED_OF_SEGMENTS => (true, true),
            _ => return Err(format!("its kind is {kind}, which this program does not know")),
        };
        let merged_in = is_merged.then_some(nonce);
        let (whole, payload) = match kind {
            KIND_TOMBSTONE_OF_SEGMENTS | KIND_MERGED_OF_SEGMENTS => {
                Whole::split(payload).ok_or("what it says of segments is malformed")?
            }
            _ => (Whole::default(), payload),
        };
        let start = payload.as_ptr() as usize - bytes.as_ptr() as usize;
        let header = read_header(payload).ok_or("its table is malformed")?;
        let table = Self {
            number,
            nonce,
            merged_in,
            all: header.all,
            newest: header.newest,
            whole,
            lengths: header.lengths,
            is_of_views,
            len: header.len,
            entries: start + header.entries,
            names: start + header.names,
            bytes,
        };
        if table.newest > number || table.all > number || table.whole.newest() > number {
            return Err("it names a newer change".to_owned());
        }
        match (0..table.len).find(|&at| !table.is_sound(at)) {
            None => Ok(table),
            Some(at) => Err(format!("entry {at} of its table leads out of the file, or is out of order")),
        }
    }

    /// Whether its bytes are as they were written still. A map was verified when it was opened, and the system may have read it again since.
    pub(super) fn is_intact_still(&self) -> bool {
        matches!(self.bytes, ChangeBytes::Heap(_)) || decode(self.number, &self.bytes).is_ok()
    }

    /// Whether an entry is found by who asks for its name: one that is not would kill nothing, and be no damage.
    fn is_sound(&self, at: usize) -> bool {
        let Some(Entry { hash, number, named, name }) = self.entry(at) else { return false };
        let own = match named {
            Named::Key => key_hash(name),
            Named::Prefix => prefix_hash(name),
            Named::View(view) => view_hash(name, view),
        };
        let is_in_order = at == 0 || self.hash(at - 1).is_some_and(|before| before <= hash);
        let has_length = || self.lengths.iter().any(|len| usize::from(*len) == name.len());
        own == hash && is_in_order && number <= self.newest && (named != Named::Prefix || has_length())
    }

    /// The newest change that names this key in this view; 0 if none does.
    pub(super) fn newest_for(&self, asked: HashedKey<'_>) -> u64 {
        let HashedKey { key, view, hash, view_hash } = asked;
        let of_key = self.find(hash, key, Named::Key).max(self.all);
        let of_view = if self.is_of_views { self.find(view_hash, key, Named::View(view)) } else { 0 };
        let prefixes = self.lengths.iter().map_while(|&len| key.get(..usize::from(len)));
        let of_prefixes = prefixes.map(|prefix| self.find(prefix_hash(prefix), prefix, Named::Prefix));
        of_prefixes.fold(of_key.max(of_view), u64::max)
    }

    fn find(&self, hash: KeyHash, name: &[u8], named: Named) -> u64 {
        let from = self.first_at_least(hash);
        let same_hash = (from..self.len).map_while(|at| self.entry(at).filter(|entry| entry.hash == hash));
        same_hash.filter(|e| e.named == named && e.name == name).map(|e| e.number).max().unwrap_or(0)
    }

    /// The place of the first entry whose hash is not below `hash`.
    fn first_at_least(&self, hash: KeyHash) -> usize {
        let below = |at: usize| self.hash(at).is_some_and(|own| own < hash);
        let guess = ((u128::from(hash) * self.len as u128) >> 64) as usize;
        let mut step = self.len.isqrt() + 1;
        // What stands before `low` is below, what stands at `high` and behind is not.
        let (mut low, mut high) = (guess, guess);
        while low > 0 && !below(low - 1) {
            high = low - 1;
            low = low.saturating_sub(step);
            step *= 2;
        }
        while high < self.len && below(high) {
            low = high + 1;
            high = self.len.min(high + step);
            step *= 2;
        }
        while low < high {
            let middle = low.midpoint(high);
            if below(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn hash(&self, at: usize) -> Option<KeyHash> {
        u64_at(&self.bytes, self.entries + at * ENTRY)
    }

    fn entry(&self, at: usize) -> Option<Entry<'_>> {
        let mut cursor = Cursor::new(self.bytes.get(self.entries + at * ENTRY..)?);
        let (hash, number, place) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
        let marks = if self.is_of_views { PREFIX | VIEW } else { PREFIX };
        let at = self.names.checked_add(usize::try_from(place & !marks).ok()?)?;
        let mut behind = Cursor::new(self.bytes.get(at..)?);
        let len = behind.u16()?;
        let name = behind.take(usize::from(len))?;
        let named = match place & marks {
            0 => Named::Key,
            PREFIX => Named::Prefix,
            VIEW => Named::View(behind.u32()?),
            _ => return None,
        };
        Some(Entry { hash, number, named, name })
    }

    /// The bytes of its file.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many keys and prefixes it names.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All entries, in ascending order of their hashes.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.len).map_while(|at| self.entry(at))
    }
}

/// What a table begins with, and where in the payload its parts are.
struct Header {
    all: u64,
    newest: u64,
    lengths: Vec<u16>,
    len: usize,
    entries: usize,
    names: usize,
}

fn read_header(payload: &[u8]) -> Option<Header> {
    let mut cursor = Cursor::new(payload);
    let (all, newest) = (cursor.u64()?, cursor.u64()?);
    let len = usize::try_from(cursor.u64()?).ok()?;
    let count = usize::try_from(cursor.u64()?).ok()?;
    let entries = FIXED.checked_add(count.checked_mul(2)?)?;
    let names = entries.checked_add(len.checked_mul(ENTRY)?)?;
    (names <= payload.len()).then_some(())?;
    let lengths = (0..count).map(|_| cursor.u16()).collect::<Option<Vec<_>>>()?;
    lengths.is_sorted_by(|length, next| length < next).then_some(())?;
    Some(Header { all, newest, lengths, len, entries, names })
}

/// The bytes before the entries. `lengths` are those of the prefixes, ascending, each once.
pub(super) fn header(all: u64, newest: u64, len: u64, lengths: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED + 2 * lengths.len());
    for number in [all, newest, len, lengths.len() as u64] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend(lengths.iter().flat_map(|len| len.to_le_bytes()));
    out
}

/// The bytes of an entry whose name is stored `place` bytes behind the first name.
pub(super) fn entry_bytes(entry: &Entry<'_>, place: u64) -> [u8; ENTRY] {
    let place = match entry.named {
        Named::Key => place,
        Named::Prefix => place | PREFIX,
        Named::View(_) => place | VIEW,
    };
    let mut out = [0; ENTRY];
    for (part, number) in out.chunks_exact_mut(8).zip([entry.hash, entry.number, place]) {
        part.copy_from_slice(&number.to_le_bytes());
    }
    out
}

/// The bytes of an entry's name: its length, at most [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES) as that of a key, the name,
/// and the view where the entry is of one.
pub(super) fn name_bytes<'a>(entry: &Entry<'a>) -> impl Iterator<Item = u8> + use<'a> {
    let view = match entry.named {
        Named::View(view) => Some(view.to_le_bytes()),
        Named::Key | Named::Prefix => None,
    };
    let len = (entry.name.len() as u16).to_le_bytes();
    len.into_iter().chain(entry.name.iter().copied()).chain(view.into_iter().flatten())
}

/// How many bytes [`name_bytes`] gives.
pub(super) fn name_len(entry: &Entry<'_>) -> u64 {
    let view = if matches!(entry.named, Named::View(_)) { size_of::<u32>() } else { 0 };
    (size_of::<u16>() + entry.name.len() + view) as u64
}
