//! The rows that a change commits, and those that a tombstone names. Both are read by the description of the format and by Arrow, not
//! by the engine, which the oracle judges.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_ipc::reader::FileReader;

use super::folder::State;
use crate::sys::bytes::{Cursor as Bytes, u64_at};

/// A row of a durable segment that counts only with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Committed {
    pub(super) key: String,
    pub(super) view: u32,
    pub(super) value: i64,
    /// The number of the change.
    pub(super) base: u64,
}

/// A segment in the folder, with its rows.
pub(super) struct Stored {
    pub(super) base: u64,
    /// When the oldest of its rows was computed, in milliseconds since 1970.
    pub(super) born: u64,
    /// The nonce of the change that commits it, if it waits for one.
    commit: Option<String>,
    pub(super) rows: Vec<Committed>,
}

impl Stored {
    /// The change without which it cannot be served. One that waits for its commit has its name before that.
    pub(super) fn counts_on(&self) -> Option<u64> {
        self.commit.is_none().then_some(self.base)
    }
}

/// What an invalidation by age says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Age {
    pub(super) number: u64,
    /// In milliseconds since 1970.
    pub(super) before: u64,
}

/// The rows that this change commits.
pub(super) fn rows_committed(folder: &State, change: &[u8]) -> Vec<Committed> {
    let nonce = nonce(change);
    let files =
        folder.files.iter().filter(|(name, file)| name.starts_with("seg-") && file.synced && file.named);
    let segments = files.filter_map(|(name, file)| segment(folder.written(name, file)));
    segments.filter(|own| own.commit.as_deref() == Some(&nonce)).flat_map(|own| own.rows).collect()
}

/// The segments in the folder.
pub(super) fn segments(folder: &State) -> Vec<Stored> {
    let files = folder.files.iter().filter(|(name, _)| name.starts_with("seg-"));
    files.filter_map(|(name, file)| segment(folder.written(name, file))).collect()
}

/// Whether it is change 0, which makes a module.
pub(super) fn is_identity(change: &[u8]) -> bool {
    change.get(KIND..).and_then(|rest| Bytes::new(rest).u32()) == Some(IDENTITY)
}

/// What a change says of the age of rows, if it says anything.
pub(super) fn age(change: &[u8]) -> Option<Age> {
    if change.len() < KIND || Bytes::new(&change[KIND..]).u32() != Some(TOMBSTONE_OF_AGE) {
        return None;
    }
    let number = |at| u64_at(change, at).expect("a tombstone of the simulation is complete");
    (number(AGES) > 0).then(|| Age { number: number(AGES + 8), before: number(AGES + 16) })
}

/// The rows that are dead because a change names all segments that have them: those of the folder by then.
pub(super) fn rows_of_dead_segments(folder: &State, change: &[u8]) -> Vec<i64> {
    let dead = dead_segments(change).unwrap_or_default();
    if dead.is_empty() {
        return Vec::new();
    }
    rows_only_in(folder, |name, _| dead.iter().any(|dead| name["seg-".len()..].starts_with(dead.as_str())))
}

/// The rows that are in no other segment of the folder than those that are gone.
pub(super) fn rows_only_in(folder: &State, is_gone: impl Fn(&str, &Stored) -> bool) -> Vec<i64> {
    let named = folder.files.iter().filter(|(name, _)| name.starts_with("seg-"));
    let stored = named.filter_map(|(name, file)| Some((name, segment(folder.written(name, file))?)));
    let (gone, left): (Vec<_>, Vec<_>) = stored.partition(|(name, stored)| is_gone(name, stored));
    let values = |segments: Vec<(&String, Stored)>| {
        let rows = segments.into_iter().flat_map(|(_, own)| own.rows);
        rows.map(|row| row.value).collect::<BTreeSet<i64>>()
    };
    values(gone).difference(&values(left)).copied().collect()
}

/// The rows that are dead because this change comes in the place of a damaged one: those before it, if it says so, and those that the
/// damaged one had committed.
pub(super) fn rows_lost_by_repair(folder: &State, change: &[u8]) -> Vec<i64> {
    let number = u64_at(change, NUMBER).expect("a change has a number");
    let kind = Bytes::new(&change[KIND..]).u32();
    let has_table = kind == Some(TOMBSTONE) || kind == Some(TOMBSTONE_OF_VIEWS);
    let all = u64_at(change, TABLE).filter(|_| has_table).unwrap_or(0);
    rows_only_in(folder, |_, own| own.base < all || own.commit.is_some() && own.base == number)
}

/// How the names of the dead segments begin that a change of whole segments names; `None` for any other change.
fn dead_segments(change: &[u8]) -> Option<Vec<String>> {
    let kind = Bytes::new(change.get(KIND..)?).u32()?;
    let mut lists = Bytes::new(change.get(TABLE..)?);
    if kind != TOMBSTONE_OF_AGE {
        return None;
    }
    for _ in 0..lists.u64()? {
        lists.u64().zip(lists.u64())?;
    }
    for _ in 0..lists.u64()? {
        lists.u64().zip(lists.u64()).zip(lists.u64())?;
        let names = lists.u64()? + lists.u64()? + lists.u64()?;
        (0..names).try_for_each(|_| lists.random().map(drop))?;
    }
    (0..lists.u64()?).map(|_| Some(hex((lists.random()?, lists.u64()?).0.0.iter()))).collect()
}

/// The nonce of a change, as segments write it.
fn nonce(change: &[u8]) -> String {
    hex(change.iter().skip(NONCE).take(16))
}

fn hex<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    bytes.fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A segment of the simulation; `None` if it is damaged.
pub(super) fn segment(bytes: &[u8]) -> Option<Stored> {
    let reader = FileReader::try_new(Cursor::new(bytes), None).ok()?;
    let metadata = reader.custom_metadata();
    if metadata.get("tcx.format")? != "3" {
        return None;
    }
    let (base, born) = (metadata.get("tcx.base")?.parse().ok()?, metadata.get("tcx.born")?.parse().ok()?);
    let commit = metadata.get("tcx.commit").cloned();
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.ok()?;
        let (keys, views) = (batch.column_by_name("__key")?, batch.column_by_name("__view")?);
        let (keys, views) = (keys.as_string_opt::<i64>()?, views.as_primitive_opt::<UInt32Type>()?);
        let values = batch.column_by_name("value")?.as_primitive_opt::<Int64Type>()?;
        rows.extend((0..batch.num_rows()).map(|row| {
            let (key, view, value) = (keys.value(row).to_owned(), views.value(row), values.value(row));
            Committed { key, view, value, base }
        }));
    }
    Some(Stored { base, born, commit, rows })
}

/// How a change begins, where its parts are, and the marks of an entry: see `docs/format.md`.
const KIND: usize = 12;
const NUMBER: usize = 16;
const NONCE: usize = 24;
const TABLE: usize = 48;
const AGES: usize = TABLE;
const ENTRIES: usize = TABLE + 32;
const ENTRY: usize = 24;
const IDENTITY: u32 = 0;
const TOMBSTONE: u32 = 1;
const TOMBSTONE_OF_VIEWS: u32 = 3;
const TOMBSTONE_OF_AGE: u32 = 5;
const MARKS: u64 = 3 << 62;
const VIEW: u64 = 1 << 62;

/// The keys that a tombstone names in one view, each with the view; nothing of any other change.
pub(super) fn rows_named(change: &[u8]) -> Vec<(String, u32)> {
    let of_views = names(change, TOMBSTONE_OF_VIEWS, VIEW).into_iter();
    let name = |(key, behind): (String, &[u8])| {
        let view = u32::from_le_bytes(behind[..4].try_into().expect("four bytes"));
        (key, view)
    };
    of_views.map(name).collect()
}

/// The keys of those entries of a change of this kind that have these marks, each with the bytes behind it.
fn names(change: &[u8], kind: u32, marks: u64) -> Vec<(String, &[u8])> {
    if change.len() < KIND || Bytes::new(&change[KIND..]).u32() != Some(kind) {
        return Vec::new();
    }
    let number = |at| u64_at(change, at).expect("a tombstone of the simulation is complete") as usize;
    let (len, lengths) = (number(TABLE + 16), number(TABLE + 24));
    let entries = ENTRIES + 2 * lengths;
    let names = entries + len * ENTRY;
    let places = (0..len).map(|entry| number(entries + entry * ENTRY + 16) as u64);
    let name = |place: u64| {
        let at = names + (place & !MARKS) as usize;
        let len = usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let (key, behind) = change[at + 2..].split_at(len);
        (String::from_utf8(key.to_vec()).expect("keys of the simulation are text"), behind)
    };
    places.filter(|place| place & MARKS == marks).map(name).collect()
}
