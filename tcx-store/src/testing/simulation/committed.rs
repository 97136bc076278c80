//! The rows that a change commits, and those that a tombstone names. Both are read by the description of the format and by Arrow, not
//! by the engine, which the oracle judges.

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
struct Stored {
    base: u64,
    /// When the oldest of its rows was computed, in milliseconds since 1970.
    born: u64,
    /// The nonce of the change that commits it, if it waits for one.
    commit: Option<String>,
    rows: Vec<Committed>,
}

/// The rows that this change commits.
pub(super) fn rows_committed(folder: &State, change: &[u8]) -> Vec<Committed> {
    let nonce = nonce(change);
    let files =
        folder.files.iter().filter(|(name, file)| name.starts_with("seg-") && file.synced && file.named);
    let segments = files.filter_map(|(_, file)| segment(&file.bytes));
    segments.filter(|own| own.commit.as_deref() == Some(&nonce)).flat_map(|own| own.rows).collect()
}

/// The rows of the segments, one row of which was computed before this time. Those do not count that wait for a change which has not come,
/// or in whose place another has come. One of a version to come may be theirs.
pub(super) fn rows_older_than(folder: &State, millis: u64) -> Vec<Committed> {
    let files = folder.files.iter().filter(|(name, _)| name.starts_with("seg-"));
    let old = files.filter_map(|(_, file)| segment(&file.bytes)).filter(|own| own.born < millis);
    let number = |name: &String| name.strip_prefix("change-").or(name.strip_prefix("merged-"))?.parse().ok();
    let newest: u64 = folder.files.keys().filter_map(number).max().unwrap_or(0);
    let counts = |own: &Stored| match (&own.commit, folder.files.get(&format!("change-{:020}", own.base))) {
        (None, _) => true,
        (Some(commit), Some(change)) => {
            is_of_a_version_to_come(&change.bytes) || nonce(&change.bytes) == *commit
        }
        // It is merged.
        (Some(_), None) => own.base <= newest,
    };
    old.filter(counts).flat_map(|own| own.rows).collect()
}

/// Whether the nonce of this change cannot be read.
fn is_of_a_version_to_come(change: &[u8]) -> bool {
    !change.starts_with(MAGIC)
}

/// The nonce of a change, as segments write it.
fn nonce(change: &[u8]) -> String {
    change.iter().skip(NONCE).take(16).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A segment of the simulation; `None` if it is damaged.
fn segment(bytes: &[u8]) -> Option<Stored> {
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
const MAGIC: &[u8] = b"TCXCHG01";
const KIND: usize = 12;
const NONCE: usize = 24;
const TABLE: usize = 48;
const ENTRIES: usize = TABLE + 32;
const ENTRY: usize = 24;
const TOMBSTONE: u32 = 1;
const TOMBSTONE_OF_VIEWS: u32 = 3;
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

/// The keys that a tombstone names in all their views, and nothing else; nothing of any other change.
pub(super) fn keys_named(change: &[u8]) -> Vec<String> {
    names(change, TOMBSTONE, 0).into_iter().map(|(key, _)| key).collect()
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
