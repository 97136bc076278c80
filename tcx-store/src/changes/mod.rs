//! The numbered changes of a module: immutable records, created only where their number is free.

mod ages;
mod check;
mod create;
mod dead_segments;
mod evictions;
mod expired;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity;
pub(crate) mod instance;
mod known;
mod known_tombstones;
mod merge;
mod new_tombstone;
mod numbers;
mod pending;
mod read;
mod repaired;
mod replacements;
mod same;
mod table;
mod unseen;
mod whole;

pub(crate) use check::check_change;
pub(crate) use create::{DraftedChange, contended};
pub(crate) use evictions::bytes_of_eviction;
pub(crate) use expired::{Expired, Replacing};
pub(crate) use identity::{IdentityChange, now_millis};
pub(crate) use known::{KnownChanges, ListedChanges, Needs, Shown};
pub(crate) use known_tombstones::Tombstones;
pub(crate) use merge::MergePlan;
pub(crate) use new_tombstone::Doomed;
pub(crate) use numbers::ChangeNumbers;
pub(crate) use pending::{Attempt, Seen};
pub(crate) use read::{is_of_another_version, map as map_change};
pub(crate) use repaired::{
    Lost, announcement_of_lost, as_merged_say, begin_of_repair, news_of_repairs, tombstone_for_everything,
};
pub(crate) use replacements::{Replacement, ReplacementPlace};
pub(crate) use same::{Compared, Origin};
pub(crate) use whole::{Dated, Lineage};

use crate::sys::bytes::{Cursor, Random};
use crate::sys::checksum::checksum;

const MAGIC: &[u8; 8] = b"TCXCHG01";
const VERSION: u32 = 1;
const HEADER: usize = 48;
/// The most bytes of a change, far more than anybody writes: it bounds what a file of holes costs that says it is one.
const MOST_BYTES: usize = 16 << 30;

/// What a change or a file of merged changes may have.
fn most_bytes() -> usize {
    #[cfg(test)]
    if let Some(most) = tests::MOST_BYTES.get() {
        return most;
    }
    MOST_BYTES
}

/// The kinds of change that this version makes and understands.
const KIND_IDENTITY: u32 = 0;
const KIND_TOMBSTONE: u32 = 1;
/// No change of its own: the tombstones of all changes up to its number.
const KIND_MERGED: u32 = 2;
/// The two with entries that name a key in one view. A program that does not know them kills everything older.
const KIND_TOMBSTONE_OF_VIEWS: u32 = 3;
const KIND_MERGED_OF_VIEWS: u32 = 4;
/// The two that kill whole segments: what says which is before their tables. The second may have entries of one view, too. A program that does
/// not know them kills everything older.
const KIND_TOMBSTONE_OF_SEGMENTS: u32 = 5;
const KIND_MERGED_OF_SEGMENTS: u32 = 6;
const KINDS: [u32; 7] = [
    KIND_IDENTITY,
    KIND_TOMBSTONE,
    KIND_MERGED,
    KIND_TOMBSTONE_OF_VIEWS,
    KIND_MERGED_OF_VIEWS,
    KIND_TOMBSTONE_OF_SEGMENTS,
    KIND_MERGED_OF_SEGMENTS,
];

/// The bytes before a payload of `payload` bytes.
fn header(number: u64, kind: u32, nonce: Random, payload: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&nonce.0);
    bytes.extend_from_slice(&payload.to_le_bytes());
    bytes
}

/// Makes a change of its number, kind and payload.
fn encode(number: u64, kind: u32, nonce: Random, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(number, kind, nonce, payload.len() as u64);
    bytes.extend_from_slice(payload);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// A change whose checksum is right.
#[derive(Debug, PartialEq, Eq)]
struct Change<'a> {
    kind: u32,
    nonce: Random,
    payload: &'a [u8],
}

/// Reads change `number`, or returns what is wrong with the bytes.
fn decode(number: u64, bytes: &[u8]) -> Result<Change<'_>, String> {
    // First: it would take hours to read a file of nothing but holes.
    read::check_length(bytes, bytes.len())?;
    let (body, sum) = bytes.split_last_chunk::<8>().ok_or("it is shorter than any change")?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong".to_owned());
    }
    let mut cursor = Cursor::new(body);
    let short = || "it is truncated".to_owned();
    if cursor.take(8).ok_or_else(short)? != MAGIC {
        return Err("it is not a change of tcx".to_owned());
    }
    let version = cursor.u32().ok_or_else(short)?;
    if version != VERSION {
        return Err(format!("it has version {version}, this program knows {VERSION}"));
    }
    let kind = cursor.u32().ok_or_else(short)?;
    let own = cursor.u64().ok_or_else(short)?;
    if own != number {
        return Err(format!("its header says that it is change {own}"));
    }
    let nonce = cursor.random().ok_or_else(short)?;
    Ok(Change { kind, nonce, payload: &body[HEADER..] })
}

/// Whether these are the bytes of change `number`, or of changes merged up to it, as they were written. Those of another version pass.
///
/// # Errors
///
/// Returns what is wrong.
pub(crate) fn verify_change(number: u64, bytes: &[u8]) -> Result<(), String> {
    if is_written_by_another_version(bytes) { Ok(()) } else { decode(number, bytes).map(drop) }
}

/// Whether another version of tcx has written these bytes of a change: they are as they were written, and their version or kind is not
/// known here.
pub(crate) fn is_written_by_another_version(bytes: &[u8]) -> bool {
    let Some((body, sum)) = bytes.split_last_chunk::<8>() else { return false };
    let Some((start, _)) = body.split_first_chunk::<16>() else { return false };
    let (magic, rest) = start.split_at(MAGIC.len());
    let is_known = magic == MAGIC
        && rest[..4] == VERSION.to_le_bytes()
        && KINDS.iter().any(|kind| rest[4..] == kind.to_le_bytes());
    let is_change = magic[..6] == MAGIC[..6] && magic[6..].iter().all(u8::is_ascii_digit);
    is_change && !is_known && checksum(body) == u64::from_le_bytes(*sum)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::table::{ChangeBytes, TombstoneTable};
    use super::*;

    thread_local! {
        /// Instead of the limit, in this thread.
        pub(super) static MOST_BYTES: Cell<Option<usize>> = const { Cell::new(None) };
        pub(super) static MOST_EVICTIONS: Cell<Option<usize>> = const { Cell::new(None) };
    }

    #[test]
    fn a_file_of_another_length_than_it_says_is_not_even_read() {
        let bytes = encode(3, 1, Random::new(), b"payload");
        for other in [[&bytes[..], b"x"].concat(), bytes[..bytes.len() - 1].to_vec(), vec![0; 1 << 20]] {
            assert_eq!(decode(3, &other), Err("its length differs from its header".to_owned()));
        }
    }

    #[test]
    fn the_lengths_of_prefixes_ascend_so_that_no_key_is_tried_more_often_than_it_is_long() {
        let table = |lengths: &[u16]| {
            let payload = table::header(0, 1, 0, lengths);
            TombstoneTable::open(1, ChangeBytes::Heap(encode(1, KIND_TOMBSTONE, Random::new(), &payload)))
        };
        assert!(table(&[]).is_ok() && table(&[3]).is_ok() && table(&[3, 4, 700]).is_ok());
        assert!(table(&[3, 3]).is_err() && table(&[4, 3]).is_err());
    }

    #[test]
    fn a_table_whose_checksum_is_right_and_whose_entries_lead_nowhere_is_damaged() {
        let keys = Doomed::Keys(["a", "b"].map(|key| key.as_bytes().into()).into());
        for doomed in [keys, Doomed::Prefix((*b"pre").into())] {
            let open = |payload: &[u8]| {
                let bytes = encode(3, KIND_TOMBSTONE, Random([1; 16]), payload);
                TombstoneTable::open(3, ChangeBytes::Heap(bytes)).map(drop)
            };
            let payload = doomed.payload(3);
            open(&payload).unwrap();
            // Behind the numbers in front and the lengths of prefixes: hash, number and place of each entry, and the names.
            for at in 32..payload.len() {
                let mut forged = payload.clone();
                forged[at] ^= 0x40;
                assert!(open(&forged).is_err(), "byte {at} of {doomed:?}");
            }
        }
    }

    #[test]
    fn a_change_is_read_back_and_no_byte_of_it_can_change() {
        let nonce = Random::new();
        let bytes = encode(3, 1, nonce, b"payload");
        assert_eq!(decode(3, &bytes), Ok(Change { kind: 1, nonce, payload: b"payload" }));
        decode(4, &bytes).unwrap_err();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            decode(3, &damaged).unwrap_err();
            decode(3, &bytes[..at]).unwrap_err();
        }
    }

    #[test]
    fn no_change_is_made_that_is_too_large_to_be_read() {
        let keys = || Doomed::Keys((0..10).map(|key| format!("key {key}").into_bytes().into()).collect());
        let views = || Doomed::Views((0..10).map(|view| (b"key".as_slice().into(), view)).collect());
        for doomed in [keys(), views(), Doomed::Prefix((*b"pre").into()), Doomed::All] {
            let bytes = encode(3, doomed.kind(), Random([1; 16]), &doomed.payload(3));
            MOST_BYTES.set(Some(bytes.len()));
            assert_eq!(doomed.too_large(), None);
            decode(3, &bytes).unwrap();
            MOST_BYTES.set(Some(bytes.len() - 1));
            assert!(doomed.too_large().is_some(), "{doomed:?}");
            decode(3, &bytes).unwrap_err();
        }
        // As a file of another program may have one.
        let long: Box<[u8]> = vec![b'k'; crate::MAX_KEY_BYTES + 1].into();
        for doomed in [Doomed::Keys(vec![long.clone()]), Doomed::Views(vec![(long, 0)])] {
            assert!(doomed.too_large().is_some_and(|what| what.contains("a key of 4097 bytes")));
        }
        let table = |number| {
            let bytes = encode(number, KIND_TOMBSTONE, Random([1; 16]), &keys().payload(number));
            std::sync::Arc::new(TombstoneTable::open(number, ChangeBytes::Heap(bytes)).unwrap())
        };
        MOST_BYTES.set(None);
        let tables: Vec<_> = (1..=16).map(table).collect();
        assert!(MergePlan::new(16, &tables).is_some());
        MOST_BYTES.set(Some(15 * tables[0].bytes()));
        assert!(MergePlan::new(16, &tables).is_none());
        MOST_BYTES.set(None);
    }
}
