//! Segments whose checksums are right and whose bytes are not: only another program can have written them. They cost
//! misses, never a wrong row and never a panic.

use crate::sys::bytes::{Random, u64_at};
use std::io;
use std::num::NonZeroUsize;

use super::Folder;
use crate::KeyType;
use crate::segment::*;
use crate::sys::checksum::checksum;
use crate::testing::simulation::chance::Chance;

const ROWS: usize = 9;

/// The folder of a segment of `ROWS` rows.
fn folder() -> (Folder, SegmentName) {
    let folder = Folder::of_short_rows(KeyType::Text);
    let batch = folder.batch(0..ROWS as i64, 0);
    let whole = Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..ROWS) };
    let name = folder.write(&[whole], &[]).unwrap();
    (folder, name)
}

/// The same segment after a change of its bytes, with checksums that are right.
fn forge(folder: &Folder, original: &Segment, change: impl FnOnce(&mut Vec<u8>)) -> SegmentName {
    let (name, bytes) = forged(original, change);
    std::fs::write(folder.path(name), bytes).unwrap();
    name
}

/// The bytes of a segment after a change of them, with checksums that are right, and the name that they give it.
pub(crate) fn forged(original: &Segment, change: impl FnOnce(&mut Vec<u8>)) -> (SegmentName, Vec<u8>) {
    let mut bytes = original.map.to_vec();
    change(&mut bytes);
    // Where the footer cannot be read any more, the file is refused for its tail.
    let _ = fuzzing::seal(&mut bytes);
    (SegmentName { random: Random::new(), tail: checksum(&bytes[original.tail..]) }, bytes)
}

fn put(bytes: &mut [u8], at: usize, number: i64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// The rows that are served.
fn intact(segment: &Segment) -> Vec<usize> {
    (0..ROWS).filter(|&row| segment.has_intact_leaves(row, None)).collect()
}

/// What is said when rows of a segment are copied into another one.
fn copied(folder: &Folder, segment: &Segment, rows: &[u32]) -> Result<SegmentName, String> {
    let piece = Piece { source: PieceSource::Segment(segment), rows: PieceRows::Selected(rows) };
    folder.write(&[piece], &[]).map_err(|error| {
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        error.to_string()
    })
}

fn number_of(folder: &Folder, leaf: &str) -> usize {
    folder.leaves.iter().position(|own| own.name == leaf).unwrap()
}

#[test]
fn a_row_whose_offsets_lead_elsewhere_is_missed_and_not_copied() {
    let (folder, name) = folder();
    let segment = folder.open(name);
    assert_eq!(segment.judge_rest(), Verdict::Sound);
    for leaf in ["bytes", "tokens", "maps", "words", "image", "pieces", "text"] {
        let number = number_of(&folder, leaf);
        let place = segment.batch.leaves[number];
        let offsets = place.offsets.unwrap().get();
        let elements = (place.len / place.width) as i64;
        for wrong in [i64::MAX, i64::MAX / 4 + 2, -1, i64::MIN, elements + 1] {
            // Where row 3 ends, and row 4 begins.
            let name = forge(&folder, &segment, |bytes| put(bytes, offsets + 4 * 8, wrong));
            let forged = folder.open(name);
            assert_eq!(intact(&forged), [0, 1, 2, 5, 6, 7, 8], "{leaf}: {wrong}");
            assert_eq!(forged.leaf(number, 3), None);
            assert_eq!(forged.leaf(number, 4), None);
            let broken = "row 3 does not match the types of its outputs".to_owned();
            assert_eq!(forged.judge_rest(), Verdict::Damaged(broken));
            let error = copied(&folder, &forged, &[2, 3]).unwrap_err();
            assert_eq!(error, format!("row 3 of {name} does not verify"));
            copied(&folder, &forged, &[0, 1, 2, 5]).unwrap();
        }
    }
}

#[test]
fn a_row_that_ends_before_it_begins_is_missed() {
    let (folder, name) = folder();
    let segment = folder.open(name);
    let offsets = segment.batch.leaves[number_of(&folder, "tokens")].offsets.unwrap().get();
    let forged = forge(&folder, &segment, |bytes| put(bytes, offsets + 4 * 8, 0));
    // Row 3 ends at the beginning; row 4 is longer, by whole parts: that of another program.
    assert!(!intact(&folder.open(forged)).contains(&3));
}

#[test]
fn a_ragged_row_that_is_not_of_its_shape_is_missed_and_not_copied() {
    let (folder, name) = folder();
    let segment = folder.open(name);
    let (tokens, sizes) = (number_of(&folder, "tokens"), number_of(&folder, "maps.sizes"));
    let offsets = segment.batch.leaves[tokens].offsets.unwrap().get();
    let end = u64_at(&segment.map, offsets + 4 * 8).unwrap() as i64;
    // One element more in row 3, and one fewer in row 4.
    let part = forge(&folder, &segment, |bytes| put(bytes, offsets + 4 * 8, end + 1));
    // Row 3 says that it has another size than it has.
    let at = segment.batch.leaves[sizes].values + 3 * 16;
    let size = forge(&folder, &segment, |bytes| put(bytes, at, 77));
    for (name, others) in [(part, &[0, 1, 2, 5, 6, 7, 8][..]), (size, &[0, 1, 2, 4, 5, 6, 7, 8])] {
        let forged = folder.open(name);
        assert_eq!(intact(&forged), others);
        let error = copied(&folder, &forged, &[3]).unwrap_err();
        assert_eq!(error, format!("row 3 of {name} does not verify"));
    }
}

#[test]
fn text_that_is_no_text_is_missed_and_not_copied() {
    let (folder, name) = folder();
    let (text, segment) = (number_of(&folder, "text"), folder.open(name));
    let row = (0..ROWS).find(|&row| !segment.leaf(text, row).unwrap().is_empty()).unwrap();
    let at = segment.leaf(text, row).unwrap().as_ptr() as usize - segment.map.as_ptr() as usize;
    let forged = folder.open(forge(&folder, &segment, |bytes| bytes[at] = 255));
    assert_eq!(intact(&forged), (0..ROWS).filter(|&other| other != row).collect::<Vec<_>>());
    let error = copied(&folder, &forged, &(0..ROWS as u32).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error, format!("row {row} of {} does not verify", forged.name()));
}

#[test]
fn a_key_that_is_longer_than_any_is_none() {
    let folder = Folder::of_short_rows(KeyType::Text);
    let rows = 3 * crate::MAX_KEY_BYTES;
    let batch = folder.batch(0..rows as i64, 0);
    let whole = Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..rows) };
    let segment = folder.open(folder.write(&[whole], &[]).unwrap());
    let offsets = segment.batch.key.offsets.unwrap().get();
    for (len, is_key) in [(crate::MAX_KEY_BYTES, true), (crate::MAX_KEY_BYTES + 1, false)] {
        let forged = folder.open(forge(&folder, &segment, |bytes| put(bytes, offsets + 8, len as i64)));
        assert_eq!(forged.key(0).is_some(), is_key);
        assert_ne!(forged.judge_rest(), Verdict::Sound, "the next key is cut");
    }
}

#[test]
fn whatever_stands_in_headers_offsets_and_bitmaps_nothing_panics() {
    let (folder, name) = folder();
    let segment = folder.open(name);
    let rows: Vec<u32> = (0..ROWS as u32).collect();
    let header = segment.batch.key.offsets.unwrap().get();
    let mut chance = Chance::new(0x5eed);
    let places = segment.batch.leaves.iter().filter_map(|leaf| leaf.offsets.or(leaf.validity));
    let places: Vec<usize> = places.map(NonZeroUsize::get).chain([header]).collect();
    let mut opened = 0;
    for round in 0..900 {
        let forged = forge(&folder, &segment, |bytes| {
            let at = match round % 3 {
                // The schema and the header of the record batch.
                0 => chance.below(header),
                1 => places[chance.below(places.len())] + chance.below(8 * (ROWS + 1)),
                // The table of checksums, and the tail.
                _ => segment.body + chance.below(bytes.len() - segment.body),
            };
            bytes[at] ^= 1 << chance.below(8);
            if chance.below(2) == 0 {
                bytes[at] = chance.pick(&[0, 1, 127, 255]);
            }
        });
        if let Ok(forged) = folder.try_open(forged) {
            opened += 1;
            for row in (0..forged.rows()).filter(|&row| forged.has_intact_leaves(row, None)) {
                let leaves = 0..folder.leaves.len();
                assert!(leaves.clone().all(|leaf| forged.leaf(leaf, row).is_some()));
                assert!(leaves.clone().all(|leaf| forged.is_present(leaf, row).is_some()));
            }
            if forged.rows() == ROWS {
                let _ = copied(&folder, &forged, &rows);
            }
        }
        std::fs::remove_file(folder.path(forged)).unwrap();
    }
    assert!(opened > 300, "{opened}");
}

#[test]
fn record_batches_that_lie_over_each_other_are_refused() {
    let folder = Folder::new(KeyType::Int);
    let batch = folder.batch(0..9, 0);
    let name = folder
        .write(&[Piece { source: PieceSource::Batch(&batch), rows: PieceRows::Range(0..9) }], &[])
        .unwrap();
    let segment = folder.open(name);
    let footer = arrow_ipc::root_as_footer(fuzzing::footer_of(&segment.map)).unwrap();
    let block = *footer.recordBatches().unwrap().get(0);
    // Each is right for itself, and a million of them would take hours to look at.
    let metadata = metadata::Metadata { rows: 18, ..open::footer_metadata(&footer).unwrap() };
    let tail = message::tail(&folder.schema, &[block, block], &metadata.entries()).unwrap();
    let twice = SegmentName { random: Random::new(), tail: checksum(&tail) };
    std::fs::write(folder.path(twice), [&segment.map[..segment.tail], &tail].concat()).unwrap();
    let opened = folder.try_open(twice);
    assert!(matches!(opened, Err(SegmentError::Damaged(what)) if what.contains("overlaps another")));
}
