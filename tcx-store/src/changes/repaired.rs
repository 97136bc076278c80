//! What takes the place of a change that is damaged, and the change by which processes learn of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::evictions::Eviction;
use super::new_tombstone::{dead_by, of_segments, payload_of};
use super::read::map;
use super::same::{begun_nonce, listed, repair_nonce, repairs_nonce};
use super::table::{ChangeBytes, Entry, Named, TombstoneTable, header};
use super::whole::Whole;
use super::{Doomed, KIND_TOMBSTONE, KIND_TOMBSTONE_OF_SEGMENTS, KIND_TOMBSTONE_OF_VIEWS, encode};
use crate::storage::Storage;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

/// What to do about a change that is damaged or missing. An object cannot be put in the place of another in one step with its creation, so a
/// module in an object store is not repaired there.
pub(super) fn how_to_repair(storage: &dyn Storage) -> &'static str {
    if storage.is_remote() {
        "copy the objects of the module to a directory, run `tcx verify --repair` there, and `tcx push` it to another prefix"
    } else {
        "run `tcx verify --repair`"
    }
}

/// The bytes of a change that kills every row with a smaller base, put in the place of a damaged one of this instance.
pub(crate) fn tombstone_for_everything(instance: Random, number: u64) -> Vec<u8> {
    encode(number, KIND_TOMBSTONE, repair_nonce(instance, number), &Doomed::All.payload(number))
}

/// The bytes of changes that name what sound merged changes say of those with these numbers, put in their places. Rows that they had
/// committed do not count any more.
///
/// Merged changes alone are not enough: a process that cannot read them goes by the changes themselves, and would take rows for dead that
/// others serve.
///
/// # Errors
///
/// Returns an error if the folder or merged changes cannot be read.
pub(crate) fn as_merged_say(
    storage: &dyn Storage,
    instance: Random,
    numbers: &BTreeSet<u64>,
) -> io::Result<BTreeMap<u64, Vec<u8>>> {
    let Some(first) = numbers.first() else { return Ok(BTreeMap::new()) };
    let Some(merged) = find_merged(storage, instance, *first)? else { return Ok(BTreeMap::new()) };
    let own = numbers.range(..=merged.number);
    let mut said: BTreeMap<u64, Vec<Entry<'_>>> = own.map(|number| (*number, Vec::new())).collect();
    // What later changes name as well is dead by these.
    for entry in merged.iter() {
        if let Some(entries) = said.get_mut(&entry.number) {
            entries.push(entry);
        }
    }
    let change = |number, entries: Vec<Entry<'_>>| {
        let all = if merged.all == number { number } else { 0 };
        let is_of_views = entries.iter().any(|entry| matches!(entry.named, Named::View(_)));
        let whole = merged.whole.of_changes(|own| own == number);
        let mut payload = payload_of(number, all, entries);
        // No change has both.
        let kind = match () {
            () if is_of_views => KIND_TOMBSTONE_OF_VIEWS,
            () if whole.is_empty() => KIND_TOMBSTONE,
            () => {
                payload.splice(..0, whole.bytes());
                KIND_TOMBSTONE_OF_SEGMENTS
            }
        };
        encode(number, kind, repair_nonce(instance, number), &payload)
    };
    Ok(said.into_iter().map(|(number, entries)| (number, change(number, entries))).collect())
}

/// The newest sound merged changes that contain this one.
fn find_merged(storage: &dyn Storage, instance: Random, number: u64) -> io::Result<Option<TombstoneTable>> {
    let names = listed(storage).ok_or_else(|| io::Error::other("the folder cannot be listed"))?;
    let merged = names.iter().filter_map(|name| match name {
        FileName::Merged(merged) => Some(*merged).filter(|merged| *merged >= number),
        _ => None,
    });
    let mut merged: Vec<u64> = merged.collect();
    merged.sort_unstable();
    for merged in merged.into_iter().rev() {
        let table = match map(storage, FileName::Merged(merged)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read?.and_then(|map| TombstoneTable::open(merged, ChangeBytes::Mapped(map))),
        };
        if let Some(table) = table.ok().filter(|table| table.merged_in == Some(instance)) {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Segments whose rows a repair takes out of service.
#[derive(Debug)]
pub(crate) struct Lost {
    /// The random bits of their names.
    pub(crate) names: Vec<Random>,
    /// Those that leave: these, others that cannot be read and may be lost, and those that another removal has announced.
    pub(crate) leaving: Vec<Random>,
    /// The number of the change that has announced them.
    pub(crate) before: u64,
    /// The segments that stay, whatever they were joined from: others that were joined from lost ones are dead.
    pub(crate) there: Vec<Random>,
}

/// The bytes of a new change by which a repair announces the segments that are about to be lost: no process that knows of it joins them. Nor
/// does it join others with rows that are older than change `killing`, unless that is 0: those are dead from now on.
pub(crate) fn announcement_of_lost(number: u64, killing: u64, leaving: &[Random]) -> Vec<u8> {
    let evictions = vec![Eviction::new(number, number, u64::MAX, [&[], &[], leaving])];
    let payload = of_segments(&Whole { evictions, ..Whole::default() }, killing);
    encode(number, KIND_TOMBSTONE_OF_SEGMENTS, Random::new(), &payload)
}

/// The bytes of a new change by which a repair begins. It kills what a tombstone for everything kills that is about to take the place of
/// change `killing`, nothing if that is 0; and what is lost, with all that was joined from it and is not there. A repair of no changes has
/// no `killing`.
pub(crate) fn begin_of_repair(
    instance: Random,
    number: u64,
    killing: Option<u64>,
    lost: Option<&Lost>,
) -> Vec<u8> {
    let nonce = killing.map_or_else(Random::new, |_| begun_nonce(instance, number));
    let killing = killing.unwrap_or(0);
    let Some(Lost { names, leaving, before, there }) = lost else {
        return encode(number, KIND_TOMBSTONE, nonce, &header(killing, killing, 0, &[]));
    };
    // Of what is there an earlier eviction may have killed some: this one does not say that it has not.
    let evictions = vec![Eviction::new(number, *before, u64::MAX, [&[], there, leaving])];
    let dead = dead_by(number, names);
    let payload = of_segments(&Whole { evictions, dead, ..Whole::default() }, killing);
    encode(number, KIND_TOMBSTONE_OF_SEGMENTS, nonce, &payload)
}

/// The bytes of a new change of this instance by which processes learn that changes before it were repaired. It kills nothing itself.
pub(crate) fn news_of_repairs(instance: Random, number: u64) -> Vec<u8> {
    encode(number, KIND_TOMBSTONE, repairs_nonce(instance, number), &header(0, 0, 0, &[]))
}
