//! Making tombstones: of one change, and of all changes up to a number, merged.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::iter::Peekable;
use std::sync::Arc;

use super::ages::Age;
use super::dead_segments::{self, DeadSegment};
use super::evictions::Eviction;
use super::table::{
    ENTRY, Entry, Named, TombstoneTable, entry_bytes, header, key_hash, name_bytes, name_len, prefix_hash,
    view_hash,
};
use super::whole::Whole;
use super::{
    HEADER, KIND_MERGED, KIND_MERGED_OF_SEGMENTS, KIND_MERGED_OF_VIEWS, KIND_TOMBSTONE,
    KIND_TOMBSTONE_OF_SEGMENTS, KIND_TOMBSTONE_OF_VIEWS, header as change_header, most_bytes,
};
use crate::schema::key::MAX_KEY_BYTES;
use crate::sys::bytes::Random;
use crate::sys::checksum::ChecksummedWriter;

/// The most keys that one change names: it is written again whenever another process creates one first.
const MOST_KEYS: usize = 100_000;

/// What a tombstone names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doomed {
    /// These keys, in all their views.
    Keys(Vec<Box<[u8]>>),
    /// These keys, each in this view only.
    Views(Vec<(Box<[u8]>, u32)>),
    /// Every key that begins so.
    Prefix(Box<[u8]>),
    /// What was computed before `limit`, in milliseconds since 1970.
    OlderThan {
        limit: u64,
        /// What was joined to segments that die by it: the random bits of their names.
        dead: Vec<Random>,
    },
    /// What was joined from segments that are about to be removed, and is not known; as long as `before` is not known, it is only in doubt.
    Evicted {
        /// The number of the first change of the eviction.
        before: Option<u64>,
        /// None of these segments was born later, in milliseconds since 1970.
        until: u64,
        /// The joined segments that stay.
        kept: Vec<Random>,
        /// Segments that cannot be read now, of which an earlier eviction may have killed some.
        unread: Vec<Random>,
        /// The segments that are about to be removed, or rewritten with fewer rows.
        leaving: Vec<Random>,
        /// Those of them that are dead from now on, and those that they were joined from, which may come back by a copy of the folder.
        dead: Vec<Random>,
    },
    /// These segments, wherever they are: the random bits of their names.
    Segments(Vec<Random>),
    /// Every key.
    All,
}

impl Doomed {
    /// The kind of a change with this payload.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Self::Views(_) => KIND_TOMBSTONE_OF_VIEWS,
            Self::OlderThan { .. } | Self::Evicted { .. } | Self::Segments(_) => KIND_TOMBSTONE_OF_SEGMENTS,
            Self::Keys(_) | Self::Prefix(_) | Self::All => KIND_TOMBSTONE,
        }
    }

    /// The same in parts, each for a change of its own. There is one, unless it names very many keys.
    pub(crate) fn parts(self) -> Vec<Self> {
        let Self::Keys(mut keys) = self else { return vec![self] };
        let mut parts = Vec::new();
        while keys.len() > MOST_KEYS {
            parts.push(Self::Keys(keys.split_off(keys.len() - MOST_KEYS)));
        }
        parts.push(Self::Keys(keys));
        parts
    }

    /// What makes it too large for one change, if anything does: no reader would accept it.
    pub(crate) fn too_large(&self) -> Option<String> {
        // Of a caller, none is so long. A file that another program has written may have longer ones.
        let longest = match self {
            Self::Keys(keys) => keys.iter().map(|key| key.len()).max(),
            Self::Views(rows) => rows.iter().map(|(key, _)| key.len()).max(),
            _ => None,
        };
        if let Some(longest) = longest.filter(|longest| *longest > MAX_KEY_BYTES) {
            return Some(format!(
                "cannot invalidate a key of {longest} bytes: a key has at most {MAX_KEY_BYTES}"
            ));
        }
        let (names, bytes) = match self {
            Self::Keys(keys) => (keys.len(), keys.iter().map(|key| key.len()).sum::<usize>()),
            Self::Views(rows) => (rows.len(), rows.iter().map(|(key, _)| key.len() + size_of::<u32>()).sum()),
            Self::Prefix(prefix) => (1, prefix.len() + size_of::<u16>()),
            // A few bytes for each of the segments in a folder, and of those that they were joined from.
            Self::Evicted { .. } | Self::Segments(_) | Self::OlderThan { .. } | Self::All => (0, 0),
        };
        let bytes = bytes
            + names * (ENTRY + size_of::<u16>())
            + header(0, 0, 0, &[]).len()
            + HEADER
            + size_of::<u64>();
        let most = most_bytes();
        (bytes > most).then(|| {
            format!("cannot invalidate {names} keys at once: they take {bytes} bytes, a change holds at most {most}")
        })
    }

    /// The payload of change `number`.
    pub(super) fn payload(&self, number: u64) -> Vec<u8> {
        let entry = |hash, named, name| Entry { hash, number, named, name };
        let entries = match self {
            Self::Keys(keys) => keys.iter().map(|key| entry(key_hash(key), Named::Key, &**key)).collect(),
            Self::Views(rows) => {
                let views =
                    rows.iter().map(|(key, view)| (view_hash(key, *view), Named::View(*view), &**key));
                views.map(|(hash, named, key)| entry(hash, named, key)).collect()
            }
            Self::Prefix(prefix) => vec![entry(prefix_hash(prefix), Named::Prefix, &**prefix)],
            Self::OlderThan { limit, dead } => {
                let (ages, dead) = (vec![Age { number, before: *limit }], dead_by(number, dead));
                return of_segments(&Whole { ages, dead, ..Whole::default() }, 0);
            }
            Self::Evicted { before, until, kept, unread, leaving, dead } => {
                let names: [&[Random]; 3] = [kept, unread, leaving];
                let evictions = vec![Eviction::new(number, before.unwrap_or(number), *until, names)];
                let dead = dead_by(number, dead);
                return of_segments(&Whole { evictions, dead, ..Whole::default() }, 0);
            }
            Self::Segments(names) => {
                return of_segments(&Whole { dead: dead_by(number, names), ..Whole::default() }, 0);
            }
            Self::All => Vec::new(),
        };
        let all = if *self == Self::All { number } else { 0 };
        payload_of(number, all, entries)
    }
}

/// These segments, killed by change `number`.
pub(super) fn dead_by(number: u64, names: &[Random]) -> Vec<DeadSegment> {
    dead_segments::distinct(names.iter().map(|name| DeadSegment { name: *name, number }))
}

/// The payload of a change that kills whole segments, and everything before `all`, if that is not 0. Its table is empty: no key has to be
/// looked up in it.
pub(super) fn of_segments(whole: &Whole, all: u64) -> Vec<u8> {
    let mut out = whole.bytes();
    out.extend(header(all, all, 0, &[]));
    out
}

/// The payload of a change that kills everything before `all`, if that is not 0, and what these entries name.
pub(super) fn payload_of(number: u64, all: u64, mut entries: Vec<Entry<'_>>) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| entry.hash);
    let prefixes = entries.iter().filter(|entry| entry.named == Named::Prefix);
    let lengths: BTreeSet<u16> = prefixes.map(|entry| entry.name.len() as u16).collect();
    let lengths: Vec<u16> = lengths.into_iter().collect();
    let mut out = header(all, number, entries.len() as u64, &lengths);
    let mut place = 0;
    for entry in &entries {
        out.extend_from_slice(&entry_bytes(entry, place));
        place += name_len(entry);
    }
    out.extend(entries.iter().flat_map(name_bytes));
    out
}

/// What merged changes say of whole segments.
pub(super) fn whole_of(tables: &[Arc<TombstoneTable>]) -> Whole {
    let all = tables.iter().map(|table| table.all).max().unwrap_or(0);
    Whole::together(tables.iter().map(|table| &table.whole)).of_changes(|number| number > all)
}

/// Writes the merged file of these tables, which hold every tombstone up to `number`.
///
/// They are gone through three times, so that nothing is held per name.
pub(super) fn write_merged(
    out: &mut dyn Write,
    number: u64,
    instance: Random,
    tables: &[Arc<TombstoneTable>],
) -> io::Result<()> {
    let all = tables.iter().map(|table| table.all).max().unwrap_or(0);
    let newest = tables.iter().map(|table| table.newest).max().unwrap_or(0);
    let whole = whole_of(tables);
    let (mut len, mut names, mut lengths) = (0, 0, Vec::new());
    let mut kind = KIND_MERGED;
    for entry in Merge::new(tables, all) {
        len += 1;
        names += name_len(&entry);
        if matches!(entry.named, Named::View(_)) {
            kind = KIND_MERGED_OF_VIEWS;
        }
        if entry.named == Named::Prefix
            && let Err(at) = lengths.binary_search(&(entry.name.len() as u16))
        {
            lengths.insert(at, entry.name.len() as u16);
        }
    }
    let mut header = header(all, newest, len, &lengths);
    if !whole.is_empty() {
        kind = KIND_MERGED_OF_SEGMENTS;
        header.splice(..0, whole.bytes());
    }
    let payload = header.len() as u64 + len * ENTRY as u64 + names;
    let mut out = ChecksummedWriter::new(io::BufWriter::with_capacity(1 << 16, out));
    out.write_all(&change_header(number, kind, instance, payload))?;
    out.write_all(&header)?;
    let mut place = 0;
    for entry in Merge::new(tables, all) {
        out.write_all(&entry_bytes(&entry, place))?;
        place += name_len(&entry);
    }
    for entry in Merge::new(tables, all) {
        let name: Vec<u8> = name_bytes(&entry).collect();
        out.write_all(&name)?;
    }
    out.finish()
}

/// The entries of several tables in ascending order of their hashes, each name once, with its newest number.
struct Merge<'a> {
    heads: Vec<Peekable<Box<dyn Iterator<Item = Entry<'a>> + 'a>>>,
    /// Names of one hash that are not returned yet.
    group: Vec<Entry<'a>>,
    /// Entries up to this number say nothing: everything older is dead.
    all: u64,
}

impl<'a> Merge<'a> {
    fn new(tables: &'a [Arc<TombstoneTable>], all: u64) -> Self {
        let head = |table: &'a Arc<TombstoneTable>| {
            (Box::new(table.iter()) as Box<dyn Iterator<Item = Entry<'a>>>).peekable()
        };
        Self { heads: tables.iter().map(head).collect(), group: Vec::new(), all }
    }

    /// Takes the entries of the smallest hash; `None` at the end.
    fn take_group(&mut self) -> Option<()> {
        let hash = self.heads.iter_mut().filter_map(|head| head.peek().map(|entry| entry.hash)).min()?;
        for head in &mut self.heads {
            while let Some(entry) = head.next_if(|entry| entry.hash == hash) {
                let same = |own: &&mut Entry<'_>| own.named == entry.named && own.name == entry.name;
                match self.group.iter_mut().find(same) {
                    Some(own) => own.number = own.number.max(entry.number),
                    None => self.group.push(entry),
                }
            }
        }
        let all = self.all;
        self.group.retain(|entry| entry.number > all);
        Some(())
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        while self.group.is_empty() {
            self.take_group()?;
        }
        self.group.pop()
    }
}
