//! Tombstones that could not be written, as far as this process knows.
//!
//! A failed invalidation holds in this process alone until it can be written. By then its number is greater than that of
//! rows which were looked up after it had failed. It must not kill those: each lookup keeps which failed invalidations
//! it knew, and its rows are compared with the tombstones before them only. In the same way recomputed rows outlive
//! their own tombstone, if the attempt to write it was answered by an error and has succeeded all the same.

use std::sync::{Arc, OnceLock, Weak};

use super::expired::Expired;
use super::known_tombstones::Tombstones;
use super::new_tombstone::Doomed;
use super::replacements::{Replacement, ReplacementPlace};
use super::table::{ChangeBytes, TombstoneTable};
use super::{KnownChanges, encode};
use crate::schema::key::Keys;
use crate::sys::bytes::Random;

/// An invalidation that could not be written.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) doomed: Doomed,
    pub(super) attempt: Arc<Attempt>,
    /// Ascends in the order in which they have failed, which is the order in which they are written.
    order: u64,
    /// With the number [`u64::MAX`].
    pub(super) table: TombstoneTable,
}

/// The attempt to write a tombstone.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// The same however often it is tried: by it a change is recognised whose creation succeeded and was answered by an
    /// error.
    pub(crate) nonce: Random,
    written: OnceLock<Written>,
    /// How many batches had been recomputed with the last of the rows that the tombstone makes way for, once the attempt has failed.
    recomputed: OnceLock<u64>,
}

impl Attempt {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { nonce: Random::new(), written: OnceLock::new(), recomputed: OnceLock::new() })
    }
}

/// What has become of an attempt that had failed.
#[derive(Debug)]
pub(super) struct Written {
    /// The number of its change.
    number: u64,
    /// The tombstones but for it and those that still could not be written.
    before: Tombstones,
}

impl KnownChanges {
    /// Makes something dead in this process until it can be written.
    pub(crate) fn kill_here(&mut self, doomed: Doomed, attempt: Arc<Attempt>) {
        let bytes = encode(u64::MAX, doomed.kind(), attempt.nonce, &doomed.payload(u64::MAX));
        let table = TombstoneTable::open(u64::MAX, ChangeBytes::Heap(bytes));
        let table = table.expect("what was just encoded can be read");
        self.failed += 1;
        let pending = Pending { doomed, attempt, order: self.failed, table };
        self.change_tombstones(|tombstones| tombstones.pending.push(Arc::new(pending)));
    }

    /// The tombstone for rows that were recomputed could not be written, unless a change with its nonce is found. `recomputed` counts the
    /// batches that had been recomputed with the last of the rows.
    pub(crate) fn tried(&mut self, attempt: &Arc<Attempt>, recomputed: u64) {
        let _ = attempt.recomputed.set(recomputed);
        self.tried.retain(|attempt| attempt.strong_count() > 0);
        self.tried.push(Arc::downgrade(attempt));
    }

    /// The failed attempt that has written the change with this nonce, if one has.
    pub(super) fn find_attempt(&self, nonce: Random) -> Option<Arc<Attempt>> {
        let pending = self.tombstones.pending.iter().map(|pending| pending.attempt.clone());
        let tried = self.tried.iter().filter_map(Weak::upgrade);
        pending.chain(tried).find(|attempt| attempt.nonce == nonce)
    }

    /// Whether a change may turn out to be written by this process.
    pub(super) fn may_find_attempts(&self) -> bool {
        !self.tombstones.pending.is_empty() || self.tried.iter().any(|attempt| attempt.strong_count() > 0)
    }

    /// Change `number` was written by this attempt. Lookups learn of it by [`announce`](Self::announce): this may be a copy
    /// that is let go of.
    pub(super) fn settle(&mut self, attempt: Arc<Attempt>, number: u64) {
        let mut before = self.tombstones.without_pending();
        // It may have been unread itself until now: that killed everything before it, which it does not.
        let unread = self.unread.range(..number).next_back().map_or(0, |(number, _)| *number);
        before.floor = before.all().max(unread);
        before.count();
        self.change_tombstones(|tombstones| {
            tombstones.pending.retain(|pending| pending.attempt.nonce != attempt.nonce);
        });
        self.late.push((attempt, number, before));
    }

    /// Gives the rows that outlive a tombstone which was written late the number of its change. Due before anything is
    /// compared with that change.
    pub(crate) fn announce(&mut self) {
        for (attempt, number, before) in self.late.drain(..) {
            self.tombstones.own.add(number);
            if let (Some(&recomputed), None) = (attempt.recomputed.get(), attempt.written.get()) {
                self.found.push(Replacement { number, before: before.clone(), recomputed });
            }
            // The first time says it: a change has one number.
            let _ = attempt.written.set(Written { number, before });
        }
    }

    /// The tombstones for recomputed rows that were found to be written since the last call: rows that were recomputed after those outlive
    /// them.
    pub(crate) fn take_found(&mut self) -> Vec<Replacement> {
        self.announce();
        std::mem::take(&mut self.found)
    }
}

/// What a lookup knew of the changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The newest change that its rows outlive.
    pub(crate) number: u64,
    /// The newest change that they would outlive if every row could be read and found.
    outlived: u64,
    /// The newest change known. It is greater where a replacement of missing rows may be there, and was not found.
    known: u64,
    /// The failed invalidations that were not written yet, in their order: they kill none of its rows.
    pending: Vec<Arc<Pending>>,
    /// The attempts to write the tombstone by which rows that were recomputed replace others, in their order, all after those of
    /// `pending`.
    own: Vec<Arc<Attempt>>,
    /// Behind it are the tombstones of recomputed rows that this process has written since, and the rows that died by their age.
    since: Arc<ReplacementPlace>,
    /// How many batches this process had accepted and recomputed by then.
    pub(crate) accepted: u64,
    pub(crate) recomputed: u64,
    /// Whether rows may be there that could not be read or found.
    pub(crate) is_in_doubt: bool,
    /// Whether a change could not be read, so that rows were missing which it need not name.
    pub(crate) is_unread: bool,
}

impl Seen {
    pub(crate) fn new(
        number: u64,
        known: u64,
        tombstones: &Tombstones,
        since: Arc<ReplacementPlace>,
        is_unread: bool,
    ) -> Self {
        let (pending, own) = (tombstones.pending.clone(), Vec::new());
        let (outlived, accepted, recomputed, is_in_doubt) = (number, 0, 0, false);
        Self { number, outlived, known, pending, own, since, accepted, recomputed, is_in_doubt, is_unread }
    }

    /// Rows may be there that could not be read or found. Those that a change has replaced must not be displaced by what is computed: it
    /// outlives no change but those for everything.
    pub(crate) fn doubt(&mut self, tombstones: &Tombstones) {
        self.is_in_doubt = true;
        self.number = self.number.min(tombstones.all());
    }

    /// A change could not be read, so that rows were missing which it need not name.
    pub(crate) fn hide(&mut self) {
        self.is_unread = true;
    }

    /// Whether any of the rows of these keys is dead by a change that the lookup knew. It might be there all the same: what could not be
    /// found is whether the change has replaced it. Rows that a change kills which may be read in a moment wait for it instead, unless
    /// rows could not be read either.
    pub(crate) fn may_be_replaced(&self, tombstones: &Tombstones, keys: &Keys) -> bool {
        self.number < self.known
            && (self.is_in_doubt
                || !self.is_unread
                || self.number >= tombstones.floor
                || tombstones.floor == tombstones.all())
            && (0..keys.len()).any(|row| self.kill_row(tombstones, self.number, keys, row))
    }

    /// The tombstones of recomputed rows that this process has written since, in their order.
    pub(crate) fn replacements(&self) -> impl Iterator<Item = &Replacement> {
        self.since.iter()
    }

    /// The rows of this process that were to take the place of others and have died by their age since.
    pub(crate) fn expired(&self) -> impl Iterator<Item = &Expired> {
        self.since.expired()
    }

    /// Whether a replacement of any of these keys may be there: a change that could not be read hides all rows before it, and other changes
    /// name the key. Both rows would be served once the change can be read.
    pub(crate) fn may_hide(&self, tombstones: &Tombstones, keys: &Keys) -> bool {
        self.is_unread && (0..keys.len()).any(|row| tombstones.name_row(keys, row))
    }

    /// Whether the row of the key at `position`, which has been compared with every change up to `number`, is dead.
    #[inline]
    pub(crate) fn kill_row(
        &self,
        tombstones: &Tombstones,
        number: u64,
        keys: &Keys,
        position: usize,
    ) -> bool {
        self.any_kills(tombstones, number, |tombstones, number| {
            tombstones.kill_row_but(number, keys, position, |pending| self.knew(pending))
        })
    }

    /// Whether a tombstone of this process kills the row, but for those with the numbers `uncertain`: it is dead then whatever other
    /// processes have done.
    pub(crate) fn own_kill_row(
        &self,
        tombstones: &Tombstones,
        number: u64,
        (keys, uncertain): (&Keys, &[u64]),
        position: usize,
    ) -> bool {
        self.any_kills(tombstones, number, |tombstones, number| {
            let mut own = tombstones.own_numbers_for(keys, position, |pending| self.knew(pending));
            own.any(|own| own > number && !uncertain.contains(&own))
        })
    }

    /// Whether any of the tombstones with which a row has to be compared that has been compared with every change up to `number`
    /// kills it: `kills` says so of those from a number on.
    #[inline]
    fn any_kills(
        &self,
        tombstones: &Tombstones,
        mut number: u64,
        kills: impl Fn(&Tombstones, u64) -> bool,
    ) -> bool {
        let attempts = self.pending.iter().map(|pending| &pending.attempt).chain(&self.own);
        for written in attempts.filter_map(|attempt| attempt.written.get()) {
            if written.number > number {
                if kills(&written.before, number) {
                    return true;
                }
                number = written.number;
            }
        }
        kills(tombstones, number)
    }

    /// Whether a row with this number can be dead at all.
    #[inline]
    pub(crate) fn may_kill(&self, tombstones: &Tombstones, number: u64) -> bool {
        !self.pending.is_empty() || !self.own.is_empty() || tombstones.may_kill(number)
    }

    /// The rows outlive this tombstone, too.
    pub(crate) fn add(&mut self, attempt: &Arc<Attempt>) {
        self.own.push(attempt.clone());
    }

    /// Whether nothing was invalidated or replaced in between, as far as `now` knows, nor failed to be. Rows that could not be found say
    /// nothing of that.
    pub(crate) fn is_as_of(&self, now: &Self) -> bool {
        let state =
            |own: &Self| (own.outlived, own.known, own.recomputed, own.pending.last().map(|last| last.order));
        state(self) == state(now)
    }

    fn knew(&self, pending: &Pending) -> bool {
        self.pending.last().is_some_and(|last| pending.order <= last.order)
    }
}
