//! Rows that several segments have: two processes computed them at once. Each counts once.

use std::sync::Arc;

use super::{PinnedRows, SegmentKeys, unread};
use crate::error::Result;
use crate::schema::key::{KeyHash, KeySeed};
use crate::segment::{Segment, read_ahead};

/// Hashes that several rows have whose keys are read together.
const TOGETHER: usize = 2048;

/// The hash of a key, the number of the segment, and that of the row in it.
type Place = (KeyHash, u32, u32);

/// Of each segment, the rows that earlier segments have, too, in ascending order.
///
/// # Errors
///
/// As [`SegmentKeys`]: without all keys, a row could be read twice.
pub(super) fn copies(rows: &PinnedRows) -> Result<Vec<Vec<u32>>> {
    let mut copies = vec![Vec::new(); rows.segments()];
    if rows.segments() < 2 {
        return Ok(copies);
    }
    let mut places = places(rows)?;
    places.sort_unstable();
    let alike = places.chunk_by(|one, next| one.0 == next.0).filter(|alike| alike.len() > 1);
    let alike: Vec<&[Place]> = alike.collect();
    for alike in alike.chunks(TOGETHER) {
        let of = |&(_, number, row): &Place| Some((&**segment(rows, number)?, row as usize));
        let far: Vec<(&Segment, usize)> =
            alike.iter().copied().flatten().filter_map(of).filter(|(segment, _)| segment.is_far()).collect();
        let ahead = (!far.is_empty()).then(|| read_ahead(&*rows.inspection.storage, &far, Some(&[])));
        for alike in alike {
            for (number, row) in repeated(rows, alike)? {
                copies[number as usize].push(row);
            }
        }
        drop(ahead);
    }
    for rows in &mut copies {
        rows.sort_unstable();
    }
    Ok(copies)
}

/// The hashes of all live rows.
fn places(rows: &PinnedRows) -> Result<Vec<Place>> {
    let seed = KeySeed::of_process();
    let mut places = Vec::new();
    for number in 0..rows.segments() {
        for keys in all_keys(rows, number) {
            // A row whose key does not verify is left out when it is read, too.
            places.extend(keys?.rows().map(|(row, key, view)| (seed.hash(key, view), number as u32, row)));
        }
    }
    Ok(places)
}

fn all_keys(rows: &PinnedRows, number: usize) -> SegmentKeys<'_> {
    SegmentKeys::new(rows, &rows.inspection.segments[rows.segments[number]], &[])
}

fn segment(rows: &PinnedRows, number: u32) -> Option<&Arc<Segment>> {
    rows.inspection.segments[rows.segments[number as usize]].segment.as_ref()
}

/// Of rows with one hash, in the order of their segments, those with the key and view of an earlier one.
fn repeated(rows: &PinnedRows, alike: &[Place]) -> Result<Vec<(u32, u32)>> {
    let (mut seen, mut repeated) = (Vec::new(), Vec::new());
    for &(_, number, row) in alike {
        let key = segment(rows, number).and_then(|segment| segment.key(row as usize));
        let own = &rows.inspection.segments[rows.segments[number as usize]].facts;
        // It was read a moment ago.
        let key = key.ok_or_else(|| unread(&rows.inspection, &own.name))?;
        if seen.contains(&key) {
            repeated.push((number, row));
        } else {
            seen.push(key);
        }
    }
    Ok(repeated)
}
