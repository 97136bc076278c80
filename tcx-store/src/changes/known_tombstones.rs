//! Every tombstone that a process knows: what decides which rows are dead.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::numbers::ChangeNumbers;
use super::pending::Pending;
use super::table::{HashedKey, TombstoneTable};
use super::whole::{Dated, Whole};
use super::{ages, dead_segments, evictions};
use crate::schema::key::Keys;
use crate::sys::bytes::Random;

/// How many states of tombstones this process has known.
static STATES: AtomicU64 = AtomicU64::new(0);

/// The tombstones known at one moment; immutable, shared by snapshots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    /// Rows with a smaller number are dead, whatever their keys.
    pub(super) floor: u64,
    /// The newest number of any tombstone.
    pub(super) newest: u64,
    /// In ascending order of their numbers; a merged one stands for all before it.
    pub(super) tables: Vec<Arc<TombstoneTable>>,
    /// Those that could not be written yet, with number [`u64::MAX`]: what they name is dead here and now.
    pub(super) pending: Vec<Arc<Pending>>,
    /// Which segments are dead by these, whatever their keys; and the tables that say so.
    whole: Arc<Whole>,
    whole_of: Vec<Arc<TombstoneTable>>,
    /// Another one whenever any of these changes; 0 as long as there are none. [`newest`](Self::newest) is not: an unreadable change
    /// has the same number once it is read, and all that could not be written have one.
    state: u64,
    /// The numbers of those that this process has written.
    pub(super) own: Arc<ChangeNumbers>,
}

/// As [`Tombstones::verify_still`], of these tables.
pub(super) fn verify_still(tables: &[Arc<TombstoneTable>]) -> io::Result<()> {
    match tables.iter().find(|table| !table.is_intact_still()) {
        None => Ok(()),
        Some(table) => {
            let what = format!("change {} is not as it was written any more", table.number);
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

impl Tombstones {
    /// The newest number; [`u64::MAX`] if one could not be written yet.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// A number that these tombstones share with no others of the process, unless they are a copy.
    pub(crate) fn state(&self) -> u64 {
        self.state
    }

    /// The newest tombstone for everything that could be read; 0 without one.
    pub(super) fn all(&self) -> u64 {
        self.tables.iter().map(|table| table.all).max().unwrap_or(0)
    }

    /// Asked after what cannot be undone was decided by them, and before it is done.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind `InvalidData` if the bytes of one are not what was written any more.
    pub(crate) fn verify_still(&self) -> io::Result<()> {
        verify_still(&self.tables)
    }

    /// Whether a row with this number can be dead at all: most cannot, and need no look at their keys.
    #[inline]
    pub(crate) fn may_kill(&self, number: u64) -> bool {
        number < self.newest
    }

    /// The newest tombstone that names the key in this view; [`u64::MAX`] if it could not be written yet, 0 without one.
    fn newest_for(&self, key: &[u8], view: u32) -> u64 {
        self.newest_but(key, view, |_| false)
    }

    /// As [`newest_for`](Self::newest_for), without the failed ones that are `spared`.
    fn newest_but(&self, key: &[u8], view: u32, spared: impl Fn(&Pending) -> bool) -> u64 {
        let numbers = self.numbers_for(HashedKey::new(key, view), spared);
        numbers.max().unwrap_or(0).max(self.floor)
    }

    /// The numbers of the tombstones that name the key, of each table the newest, without the failed ones that are `spared`. The table that a
    /// repair begins with has a smaller number than those before it: the first need not be the newest.
    fn numbers_for(
        &self,
        asked: HashedKey<'_>,
        spared: impl Fn(&Pending) -> bool,
    ) -> impl Iterator<Item = u64> {
        let pending = self.pending.iter().filter(move |pending| !spared(pending));
        let newest_first =
            pending.map(|pending| &pending.table).rev().chain(self.tables.iter().map(|table| &**table).rev());
        newest_first.map(move |table| table.newest_for(asked)).filter(|&number| number > 0)
    }

    /// Whether a tombstone that could be read names the key at `position` in its view, and none for everything is newer. Not those that
    /// could not be written: they are invalidations, and put no row in the place of another.
    pub(super) fn name_row(&self, keys: &Keys, position: usize) -> bool {
        let asked = HashedKey::new(keys.key(position), keys.view());
        let all = self.all();
        self.numbers_for(asked, |_| true).any(|number| number > all)
    }

    /// Whether a row of this key and view with this number is dead.
    pub(crate) fn kill(&self, number: u64, key: &[u8], view: u32) -> bool {
        self.may_kill(number) && self.newest_for(key, view) > number
    }

    /// Whether a tombstone that could be read, and is written, kills a row of this key and view with this number.
    pub(crate) fn surely_kill(&self, number: u64, key: &[u8], view: u32) -> bool {
        self.numbers_for(HashedKey::new(key, view), |_| true).max().unwrap_or(0).max(self.all()) > number
    }

    /// The latest time before which what was computed has been invalidated, in milliseconds since 1970; 0 without one.
    pub(crate) fn latest_age(&self) -> u64 {
        self.whole.ages.iter().map(|age| age.before).max().unwrap_or(0)
    }

    /// Whether rows with this number, the oldest of which was computed at this time, are dead whatever their keys: those before them were
    /// invalidated by their age.
    pub(crate) fn kill_by_age(&self, number: u64, born: u64) -> bool {
        ages::kill(&self.whole.ages, number, born)
    }

    /// Whether all rows of a segment are dead, whatever their keys: those before them were invalidated by their age, or it may contain rows
    /// that were evicted.
    pub(crate) fn kill_segment(&self, segment: Dated<'_>) -> bool {
        self.whole.kills(segment)
    }

    /// Whether a change names the segment with these random bits as dead.
    pub(crate) fn name_segment(&self, name: Random) -> bool {
        dead_segments::since(&self.whole.dead, name).is_some()
    }

    /// Whether an eviction kills a joined segment that was not there, and may have rows of those that were evicted.
    pub(crate) fn evict_unseen(&self, segment: Dated<'_>) -> bool {
        self.whole.evicts_unseen(segment)
    }

    /// Whether an eviction that has begun may kill a segment: it is not joined with others, and what it stands for stays.
    pub(crate) fn doubt_segment(&self, segment: Dated<'_>) -> bool {
        self.whole.doubts(segment)
    }

    /// Whether no eviction can have killed the segment with these random bits, whatever else is true of it.
    pub(crate) fn spare(&self, name: Random) -> bool {
        self.whole.evictions.iter().all(|own| own.spares(name))
    }

    /// Whether an eviction has this number or a later one.
    pub(crate) fn evict_since(&self, number: u64) -> bool {
        self.whole.evictions.iter().any(|own| own.number >= number)
    }

    /// The segments that evictions name as about to be removed and that are not dead.
    pub(crate) fn leaving(&self) -> BTreeSet<Random> {
        let leaving = self.whole.evictions.iter().flat_map(|own| own.leaving.iter().copied());
        leaving.filter(|name| !self.name_segment(*name)).collect()
    }

    /// Whether the first change of a removal without a time is in force, which has this number and names these segments: as long as it is, no
    /// process joins what may have been joined from them, nor removes what that stands for. The second change of another removal ends it.
    pub(crate) fn announce(&self, first: u64, names: &[Random]) -> bool {
        evictions::announce(&self.whole.evictions, first, names)
    }

    /// Whether an eviction says that the segment with these random bits is about to be removed, or to be replaced by another than this one.
    pub(crate) fn remove(&self, name: Random, replacement: Option<Random>) -> bool {
        self.whole.evictions.iter().any(|own| own.removes(name, replacement))
    }

    /// Whether a segment may be joined with others, or rewritten, and the result be the one with these random bits.
    pub(crate) fn let_join(&self, name: Random, segment: Dated<'_>, replacement: Option<Random>) -> bool {
        !self.remove(name, replacement) && !self.doubt_segment(segment)
    }

    /// Whether the row of the key at `position` with this number is dead.
    pub(crate) fn kill_row(&self, number: u64, keys: &Keys, position: usize) -> bool {
        self.may_kill(number) && self.newest_for_row(keys, position) > number
    }

    /// Whether the row of the key at `position` with this number counts as dead only because of a change that cannot be read, and that may
    /// have nothing to do with it.
    pub(crate) fn hide_row(&self, number: u64, keys: &Keys, position: usize) -> bool {
        number < self.floor && self.newest_read_for_row(keys, position) <= number
    }

    /// As [`newest_for_row`](Self::newest_for_row), of the tombstones that could be read.
    pub(crate) fn newest_read_for_row(&self, keys: &Keys, position: usize) -> u64 {
        let asked = HashedKey::new(keys.key(position), keys.view());
        self.numbers_for(asked, |_| false).max().unwrap_or(0).max(self.all())
    }

    /// As [`kill_row`](Self::kill_row), without the failed ones that are `spared`.
    pub(super) fn kill_row_but(
        &self,
        number: u64,
        keys: &Keys,
        position: usize,
        spared: impl Fn(&Pending) -> bool,
    ) -> bool {
        self.may_kill(number) && self.newest_but(keys.key(position), keys.view(), spared) > number
    }

    /// The numbers of those that name the key at `position` and that this process has written or could not write yet, of each table the
    /// newest, without the failed ones that are `spared`.
    pub(super) fn own_numbers_for(
        &self,
        keys: &Keys,
        position: usize,
        spared: impl Fn(&Pending) -> bool,
    ) -> impl Iterator<Item = u64> {
        let asked = HashedKey::new(keys.key(position), keys.view());
        self.numbers_for(asked, spared).filter(|own| *own == u64::MAX || self.own.contains(*own))
    }

    /// Whether this process has written the tombstone of this number, and no repair has put another in its place: that one commits nothing.
    pub(crate) fn are_own(&self, number: u64) -> bool {
        self.own.contains(number)
    }

    /// Those that are written.
    pub(super) fn without_pending(&self) -> Self {
        let mut written = Self { pending: Vec::new(), ..self.clone() };
        written.count();
        written
    }

    /// Those that could be read.
    pub(crate) fn without_unread(&self) -> Self {
        let mut read = Self { floor: self.all(), ..self.clone() };
        read.count();
        read
    }

    /// Counts the newest number again. Due after every change of what they kill.
    pub(super) fn count(&mut self) {
        self.state = STATES.fetch_add(1, Ordering::Relaxed) + 1;
        let of_tables = self.tables.iter().map(|table| table.newest).max().unwrap_or(0);
        let of_segments: Vec<_> = self.tables.iter().filter(|table| !table.whole.is_empty()).collect();
        // Most changes say nothing of segments, of which others may name very many.
        let is_same = |(own, other): (&Arc<TombstoneTable>, &&Arc<TombstoneTable>)| Arc::ptr_eq(own, other);
        if self.whole_of.len() != of_segments.len() || !self.whole_of.iter().zip(&of_segments).all(is_same) {
            self.whole = Whole::together(of_segments.iter().map(|table| &table.whole)).into();
            self.whole_of = of_segments.into_iter().cloned().collect();
        }
        self.newest = if self.pending.is_empty() { of_tables.max(self.floor) } else { u64::MAX };
    }

    /// The newest tombstone that names the key at `position` in its view; [`u64::MAX`] if it could not be written yet, 0 if
    /// no tombstone does.
    pub(crate) fn newest_for_row(&self, keys: &Keys, position: usize) -> u64 {
        self.newest_for(keys.key(position), keys.view())
    }
}
