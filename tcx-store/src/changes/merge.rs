//! Merging changes into one file, which saves opening them and probing them one by one.

use std::io;
use std::sync::Arc;

use super::evictions::most_evictions;
use super::known_tombstones::verify_still;
use super::most_bytes;
use super::new_tombstone::{whole_of, write_merged};
use super::table::TombstoneTable;
use crate::storage::name::FileName;
use crate::storage::{Draft, Storage};
use crate::sys::bytes::Random;
use crate::sys::runtime;

/// Changes are merged when there are so many that are not.
const MERGED_AT: usize = 16;
/// A simulated process makes few changes, and is to merge some of them.
const MERGED_AT_SIMULATED: usize = 3;

fn merged_at() -> usize {
    if runtime::is_simulated() { MERGED_AT_SIMULATED } else { MERGED_AT }
}

/// Known tombstones that are to become one file.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(super) number: u64,
    pub(super) tables: Vec<Arc<TombstoneTable>>,
}

impl MergePlan {
    /// Of the tables of all changes up to `number`, if there are enough that are not merged: enough changes, and enough bytes in them,
    /// that writing it all again is worth it, and not more than fits into one.
    pub(super) fn new(number: u64, tables: &[Arc<TombstoneTable>]) -> Option<Self> {
        let (merged, single): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.merged_in.is_some());
        let names = |tables: &[&Arc<TombstoneTable>]| {
            tables.iter().map(|table| table.len() + table.whole.dead.len()).sum::<usize>()
        };
        let worth = names(&single) >= names(&merged) / 4 || single.len() >= 4 * merged_at();
        // What names the same is written once: the merged file is no longer than they are together.
        let fits = || tables.iter().map(|table| table.bytes()).sum::<usize>() <= most_bytes();
        let evictions = || tables.iter().map(|table| table.whole.evictions.len()).sum::<usize>();
        // Most say nothing beside the newest. While nothing could be merged, because a change was damaged, there may have been any number.
        let are_few =
            || evictions() <= most_evictions() || whole_of(tables).evictions.len() <= most_evictions();
        (single.len() >= merged_at() && worth && fits() && are_few())
            .then(|| Self { number, tables: tables.to_vec() })
    }

    /// Writes the merged file, which has no name yet; the changes in it are durable.
    pub(crate) fn write(&self, storage: &dyn Storage, instance: Random) -> io::Result<Box<dyn Draft>> {
        let mut draft = storage.draft()?;
        write_merged(&mut draft, self.number, instance, &self.tables)?;
        // Its checksum is that of what was read, and no process reads the changes beside it.
        verify_still(&self.tables)?;
        Ok(draft)
    }

    /// Gives the merged file its name. Returns its number.
    pub(crate) fn publish(&self, draft: Box<dyn Draft>) -> io::Result<u64> {
        // Another process may have merged the same: then this is not needed.
        draft.create(&FileName::Merged(self.number).to_string())?;
        Ok(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::ChangeBytes;
    use super::super::tests::MOST_EVICTIONS;
    use super::super::{Doomed, encode};
    use super::*;

    /// An eviction of all that was born until then, which the next one says as well.
    fn eviction(number: u64, until: u64) -> Arc<TombstoneTable> {
        let [kept, unread, leaving, dead] = [const { Vec::new() }; 4];
        let doomed = Doomed::Evicted { before: Some(number - 1), until, kept, unread, leaving, dead };
        let bytes = encode(number, doomed.kind(), Random([1; 16]), &doomed.payload(number));
        Arc::new(TombstoneTable::open(number, ChangeBytes::Heap(bytes)).unwrap())
    }

    #[test]
    fn changes_are_merged_though_there_were_too_many_evictions_before_if_few_say_anything() {
        MOST_EVICTIONS.set(Some(4));
        let ascending: Vec<_> = (1..=20).map(|number| eviction(number, number)).collect();
        assert!(MergePlan::new(20, &ascending).is_some());
        let descending: Vec<_> = (1..=20).map(|number| eviction(number, 100 - number)).collect();
        assert!(MergePlan::new(20, &descending).is_none(), "each says something beside the others");
        MOST_EVICTIONS.set(None);
    }
}
