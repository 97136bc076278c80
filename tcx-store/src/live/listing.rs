//! What is in a folder, by the names of its files.

use std::collections::BTreeSet;
use std::io;

use crate::changes::ListedChanges;
use crate::storage::Storage;
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;

/// The files of a listing that are tcx's.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) segments: BTreeSet<SegmentName>,
    pub(crate) changes: ListedChanges,
    pub(crate) runs: Vec<Random>,
    pub(crate) temporary: Vec<Random>,
}

impl Listing {
    pub(crate) fn read(storage: &dyn Storage) -> io::Result<Self> {
        Ok(Self::of(&storage.list()?))
    }

    pub(crate) fn of(names: &[String]) -> Self {
        let mut listing = Self::default();
        for name in names.iter().filter_map(|name| FileName::parse(name)) {
            match name {
                FileName::Segment(name) => drop(listing.segments.insert(name)),
                FileName::Change(number) => drop(listing.changes.changes.insert(number)),
                FileName::Merged(number) => drop(listing.changes.merged.insert(number)),
                FileName::Run(random) => listing.runs.push(random),
                FileName::Temporary(random) => listing.temporary.push(random),
            }
        }
        // The order of a listing decides nothing.
        listing.runs.sort();
        listing
    }
}
