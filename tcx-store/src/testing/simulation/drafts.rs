//! The rows that a process has written to files without names, and those that a tombstone names. Both are read by the description
//! of the format and by Arrow, not by the engine, which the oracle judges.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use arrow_ipc::reader::FileReader;

use crate::sys::bytes::{Cursor as Bytes, u64_at};

/// A row of a complete segment that has no name yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drafted {
    pub(super) key: String,
    pub(super) view: u32,
    pub(super) value: i64,
    /// The base of its segment.
    pub(super) base: u64,
}

/// The synced files of one process that have no names yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Drafts(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    made: u64,
    synced: BTreeMap<u64, Vec<u8>>,
}

impl Drafts {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is synced: these are all its bytes.
    pub(super) fn add(&self, bytes: &[u8]) -> Synced {
        let mut files = self.files();
        files.made += 1;
        let number = files.made;
        files.synced.insert(number, bytes.to_vec());
        Synced { drafts: self.clone(), number }
    }

    /// The rows of every segment among them.
    pub(super) fn rows(&self) -> Vec<Drafted> {
        self.files().synced.values().filter_map(|bytes| rows_of_segment(bytes)).flatten().collect()
    }
}

/// A synced file, as long as it has no name and is not removed.
pub(super) struct Synced {
    drafts: Drafts,
    number: u64,
}

impl Drop for Synced {
    fn drop(&mut self) {
        self.drafts.files().synced.remove(&self.number);
    }
}

/// The rows of a segment of the simulation; `None` if it is none, or not complete.
fn rows_of_segment(bytes: &[u8]) -> Option<Vec<Drafted>> {
    let reader = FileReader::try_new(Cursor::new(bytes), None).ok()?;
    let base = reader.custom_metadata().get("tcx.base")?.parse().ok()?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.ok()?;
        let (keys, views) = (batch.column_by_name("__key")?, batch.column_by_name("__view")?);
        let (keys, views) = (keys.as_string_opt::<i64>()?, views.as_primitive_opt::<UInt32Type>()?);
        let values = batch.column_by_name("value")?.as_primitive_opt::<Int64Type>()?;
        rows.extend((0..batch.num_rows()).map(|row| {
            let (key, view, value) = (keys.value(row).to_owned(), views.value(row), values.value(row));
            Drafted { key, view, value, base }
        }));
    }
    Some(rows)
}

/// Where the parts of a change are, and the marks of an entry: see `docs/format.md`.
const KIND: usize = 12;
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
