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

/// The rows that this change commits.
pub(super) fn rows_committed(folder: &State, change: &[u8]) -> Vec<Committed> {
    let nonce = change[NONCE..NONCE + 16].iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let files =
        folder.files.iter().filter(|(name, file)| name.starts_with("seg-") && file.synced && file.named);
    files.filter_map(|(_, file)| rows_of_segment(&file.bytes, &nonce)).flatten().collect()
}

/// The rows of a segment of the simulation; `None` if this nonce does not commit it.
fn rows_of_segment(bytes: &[u8], nonce: &str) -> Option<Vec<Committed>> {
    let reader = FileReader::try_new(Cursor::new(bytes), None).ok()?;
    let metadata = reader.custom_metadata();
    if metadata.get("tcx.commit")? != nonce || metadata.get("tcx.format")? != "3" {
        return None;
    }
    let base = metadata.get("tcx.base")?.parse().ok()?;
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
    Some(rows)
}

/// Where the parts of a change are, and the marks of an entry: see `docs/format.md`.
const KIND: usize = 12;
const NONCE: usize = 24;
const TABLE: usize = 48;
const ENTRIES: usize = TABLE + 32;
const ENTRY: usize = 24;
const TOMBSTONE_OF_VIEWS: u32 = 3;
const MARKS: u64 = 3 << 62;
const VIEW: u64 = 1 << 62;

/// The keys that a tombstone names in one view, each with the view; nothing of any other change.
pub(super) fn rows_named(change: &[u8]) -> Vec<(String, u32)> {
    if Bytes::new(&change[KIND..]).u32() != Some(TOMBSTONE_OF_VIEWS) {
        return Vec::new();
    }
    let number = |at| u64_at(change, at).expect("a tombstone of the simulation is complete") as usize;
    let (len, lengths) = (number(TABLE + 16), number(TABLE + 24));
    let entries = ENTRIES + 2 * lengths;
    let names = entries + len * ENTRY;
    let places = (0..len).map(|entry| number(entries + entry * ENTRY + 16) as u64);
    let of_views = places.filter(|place| place & MARKS == VIEW);
    let name = |place: u64| {
        let at = names + (place & !MARKS) as usize;
        let len = usize::from(u16::from_le_bytes([change[at], change[at + 1]]));
        let (key, view) = change[at + 2..][..len + 4].split_at(len);
        let view = u32::from_le_bytes(view.try_into().expect("four bytes"));
        (String::from_utf8(key.to_vec()).expect("keys of the simulation are text"), view)
    };
    of_views.map(name).collect()
}
