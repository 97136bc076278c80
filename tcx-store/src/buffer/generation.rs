//! The rows of the write buffer in the order they were accepted: which of several rows of a sample is served, and what
//! becomes of each until it is sealed.
//!
//! Of several live rows of one key and view one is the *newest*: a recomputed row before any other, since what was
//! looked up before the recomputed row was accepted and computed meanwhile is older than it; otherwise the one that was
//! accepted last. The newest is served, and the only one that is sealed, so that no value changes by being flushed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::buffer::fate::{self, Fate};
use crate::changes::{Replacement, Tombstones};
use crate::computed::RowBatch;
use crate::computed::recompute::RecomputeSession;
use crate::schema::key::{KeyHash, Keys, TakeBits};

/// The number of a batch in its generation, and of a row in the batch.
type RowPlace = (u32, u32);

/// A row in the buffer.
pub(crate) struct BufferedRow {
    pub(crate) batch: Arc<RowBatch>,
    pub(crate) row: u32,
}

/// The newest live row of a key and view in the buffer.
pub(crate) enum Newest {
    /// It is served.
    Own(BufferedRow),
    /// Another session's: a recompute session, which looks for its own rows, misses. No segment contains a newer one.
    OfOthers,
}

/// Batches that are sealed together.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    pub(crate) batches: Vec<Arc<RowBatch>>,
    index: HashMap<KeyHash, RowPlace, TakeBits>,
    /// By a row of the index: the one before it. A row that was looked up long ago may be dead already.
    older: HashMap<RowPlace, RowPlace>,
    /// Whether a row was recomputed.
    replaces: bool,
    pub(crate) bytes: usize,
    pub(crate) since: Option<Instant>,
}

impl Generation {
    /// Whether a row was recomputed, so that a tombstone has to make way for it.
    pub(crate) fn replaces(&self) -> bool {
        self.replaces
    }

    fn push(&mut self, batch: Arc<RowBatch>) {
        let number = self.batches.len() as u32;
        for row in 0..batch.rows() {
            let place = (number, row as u32);
            if let Some(older) = self.index.insert(batch.keys.hash(row), place) {
                self.older.insert(place, older);
            }
        }
        self.replaces |= batch.recompute.is_some();
        self.bytes += batch.bytes();
        self.since.get_or_insert_with(Instant::now);
        self.batches.push(batch);
    }

    /// The rows of this hash, the one that was accepted last first.
    fn chain<'a>(&'a self, newest: Option<&'a RowPlace>) -> impl Iterator<Item = RowPlace> {
        std::iter::successors(newest, |place| self.older.get(place)).copied()
    }

    /// Of the rows of a key and view the one that was accepted last first.
    fn find(&self, keys: &Keys, position: usize) -> impl Iterator<Item = RowPlace> {
        self.chain(self.index.get(&keys.hash(position))).filter(move |&(number, row)| {
            let own = &self.batches[number as usize].keys;
            own.key(row as usize) == keys.key(position) && own.view() == keys.view()
        })
    }

    /// Compares every row with all tombstones up to `newest`, and leaves of several live rows of a key and view the newest.
    /// Returns how many rows have died.
    pub(crate) fn advance(&self, fates: &mut [Fate], tombstones: &Tombstones, newest: u64) -> usize {
        let gone = fate::gone(fates);
        fates.iter_mut().for_each(Fate::restore);
        fate::advance(fates, &self.batches, tombstones, newest);
        self.keep_newest(fates);
        fate::gone(fates).saturating_sub(gone)
    }

    /// Once every row has been compared with the same tombstones, one that comes later kills all rows of a key and view or
    /// none: what is left of them now is the newest, as long as its source has not changed and its time is not over. A
    /// recomputed row does not come back, since no tombstone was written for it.
    fn keep_newest(&self, fates: &mut [Fate]) {
        if self.older.is_empty() {
            // Most generations: no sample was computed twice, and no row need be looked at.
            return;
        }
        for end in self.index.values().filter(|place| self.older.contains_key(place)) {
            let mut kept: Vec<RowPlace> = Vec::new();
            for place in self.chain(Some(end)) {
                if fates[place.0 as usize].is_dead(place.1 as usize) {
                    continue;
                }
                let Some(own) = kept.iter_mut().find(|own| self.have_one_key(**own, place)) else {
                    kept.push(place);
                    continue;
                };
                let is_newer = self.replaces_at(place) && !self.replaces_at(*own);
                let (number, row) = if is_newer { std::mem::replace(own, place) } else { place };
                let (fate, rows) = (&mut fates[number as usize], self.batches[number as usize].rows());
                if self.replaces_at((number, row)) {
                    fate.kill(row as usize, rows);
                } else {
                    fate.supersede(row as usize, rows);
                }
            }
        }
    }

    /// How many of these rows of a batch are the newest of their keys: not those that a newer one was to be kept instead of.
    pub(crate) fn count_newest(&self, number: usize, rows: &[usize]) -> usize {
        let age = |place: RowPlace| (self.replaces_at(place), place);
        let is_newest = |row: usize| {
            let own = age((number as u32, row as u32));
            self.find(&self.batches[number].keys, row).all(|place| age(place) <= own)
        };
        rows.iter().filter(|row| is_newest(**row)).count()
    }

    fn have_one_key(&self, (a, row_of_a): RowPlace, (b, row_of_b): RowPlace) -> bool {
        let (a, b) = (&self.batches[a as usize].keys, &self.batches[b as usize].keys);
        a.view() == b.view() && a.key(row_of_a as usize) == b.key(row_of_b as usize)
    }

    fn replaces_at(&self, (number, _): RowPlace) -> bool {
        self.batches[number as usize].recompute.is_some()
    }
}

/// The generation that rows are accepted into, and what has become of its batches.
#[derive(Debug, Default)]
struct Active {
    generation: Generation,
    /// One for each batch.
    fates: Vec<Fate>,
}

/// A generation that is being sealed, and what became of its batches since they were accepted.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) generation: Arc<Generation>,
    /// One for each batch.
    fates: Arc<Vec<Fate>>,
}

impl Closed {
    fn is(&self, generation: *const Generation) -> bool {
        Arc::as_ptr(&self.generation) == generation
    }
}

/// Every generation that is not sealed yet.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    active: Active,
    frozen: VecDeque<Closed>,
}

impl Generations {
    /// Adds a batch to the active generation; returns the bytes there before and after, and how many of its rows have died
    /// since they were looked up, as far as it is known.
    /// `recomputed` counts the batches that were recomputed, up to this one if it was.
    pub(crate) fn push(&mut self, batch: Arc<RowBatch>, recomputed: u64) -> (usize, usize, usize) {
        let (mut fate, mut died) = Fate::accepted(&batch);
        if batch.recompute.as_ref().is_some_and(|recompute| recompute.rejects()) {
            for row in (0..batch.rows()).filter(|&row| self.is_recomputed_since(&batch, row)) {
                died += usize::from(!fate.is_dead(row));
                fate.kill(row, batch.rows());
            }
        }
        fate.recomputed = recomputed;
        let Active { generation, fates } = &mut self.active;
        let before = generation.bytes;
        fates.push(fate);
        generation.push(batch);
        (before, generation.bytes, died)
    }

    /// Whether a live row of this key and view waits that was recomputed since the batch was looked up.
    fn is_recomputed_since(&self, batch: &RowBatch, row: usize) -> bool {
        let active = (&self.active.generation, &*self.active.fates);
        let frozen = self.frozen.iter().map(|frozen| (&*frozen.generation, &**frozen.fates));
        frozen.chain(std::iter::once(active)).any(|(generation, fates)| {
            generation.find(&batch.keys, row).any(|(number, row)| {
                let fate = &fates[number as usize];
                fate.recomputed > batch.seen.recomputed && !fate.is_dead(row as usize)
            })
        })
    }

    /// Closes the active generation, unless it is empty.
    pub(crate) fn freeze(&mut self) {
        if !self.active.generation.batches.is_empty() {
            let Active { generation, fates } = std::mem::take(&mut self.active);
            self.frozen.push_back(Closed { generation: Arc::new(generation), fates: Arc::new(fates) });
        }
    }

    /// The oldest frozen generation but for `written`.
    pub(crate) fn after(&self, written: Option<&Weak<Generation>>) -> Option<&Arc<Generation>> {
        let after = |frozen: &&Closed| written.is_none_or(|written| !frozen.is(written.as_ptr()));
        self.frozen.iter().find(after).map(|frozen| &frozen.generation)
    }

    /// Since when the oldest row that is not one of `written` has waited.
    pub(crate) fn oldest_since(&self, written: Option<&Weak<Generation>>) -> Option<Instant> {
        self.after(written).map_or(self.active.generation.since, |generation| generation.since)
    }

    pub(crate) fn release_oldest(&mut self) -> Option<Closed> {
        self.frozen.pop_front()
    }

    pub(crate) fn all_batches(&self) -> impl Iterator<Item = &Arc<RowBatch>> {
        let frozen = self.frozen.iter().flat_map(|frozen| &frozen.generation.batches);
        frozen.chain(&self.active.generation.batches)
    }

    /// What has become of the batches of a frozen generation; `None` once it has been released.
    pub(crate) fn fates(&self, generation: &Arc<Generation>) -> Option<Arc<Vec<Fate>>> {
        let frozen = self.frozen.iter().find(|frozen| frozen.is(Arc::as_ptr(generation)));
        frozen.map(|frozen| frozen.fates.clone())
    }

    /// Keeps what has become of the batches of a frozen generation, and that rows which were recomputed after those of
    /// `replacements` were accepted are newer than them. Returns how many of the later rows have died.
    pub(crate) fn settle(
        &mut self,
        generation: &Arc<Generation>,
        fates: Arc<Vec<Fate>>,
        replacements: &[Replacement],
    ) -> usize {
        let at = self.frozen.iter().position(|frozen| frozen.is(Arc::as_ptr(generation)));
        if let Some(at) = at {
            self.frozen[at].fates = fates;
        }
        let later = at.map_or(0, |at| at + 1);
        let frozen = self.frozen.range_mut(later..);
        let frozen = frozen.map(|own| (&own.generation.batches, Arc::make_mut(&mut own.fates)));
        let Active { generation, fates } = &mut self.active;
        let mut died = 0;
        for (batches, fates) in frozen.chain(std::iter::once((&generation.batches, fates))) {
            for Replacement { number, before, .. } in replacements {
                died += fate::outlive(fates, batches, before, *number);
            }
        }
        died
    }

    /// The newest live row of a key and view.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, position: usize) -> Option<Newest> {
        // Most rows that are looked up are not buffered: one probe of each index says so.
        let hash = wanted.keys.hash(position);
        let is_known = |own: &Generation| own.index.contains_key(&hash);
        if !is_known(&self.active.generation) && !self.frozen.iter().any(|own| is_known(&own.generation)) {
            return None;
        }
        let active = (&self.active.generation, &*self.active.fates);
        let frozen = self.frozen.iter().rev().map(|frozen| (&*frozen.generation, &**frozen.fates));
        let generations = || std::iter::once(active).chain(frozen.clone());
        let newest_first = generations().flat_map(|(own, fates)| wanted.alive(own, fates, position));
        let mut newest_first = newest_first.peekable();
        let &last = newest_first.peek()?;
        let is_replaced = last.0.recompute.is_none() && generations().any(|(own, _)| own.replaces);
        let replacement = || newest_first.find(|(batch, _)| batch.recompute.is_some());
        let (batch, row) = is_replaced.then(replacement).flatten().unwrap_or(last);
        Some(if wanted.is_own(batch, position) {
            Newest::Own(BufferedRow { batch: batch.clone(), row })
        } else {
            Newest::OfOthers
        })
    }
}

/// What a lookup asks the buffer for.
pub(crate) struct Wanted<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) tombstones: &'a Tombstones,
    pub(crate) recompute: Option<&'a Arc<RecomputeSession>>,
    /// Rows that were computed before this moment, in milliseconds since 1970, are not served any more.
    pub(crate) oldest_kept: u64,
}

impl Wanted<'_> {
    /// The rows of the key at `position` that are neither dead nor too old, and whose source has not changed.
    fn alive<'g>(
        &self,
        generation: &'g Generation,
        fates: &[Fate],
        position: usize,
    ) -> impl Iterator<Item = (&'g Arc<RowBatch>, u32)> {
        let places = generation.find(self.keys, position).filter(move |&(number, row)| {
            let fate = &fates[number as usize];
            let batch = &generation.batches[number as usize];
            batch.refused().is_none()
                && batch.born >= self.oldest_kept
                && !fate.is_dead(row as usize)
                && !fate.kill_row(self.tombstones, self.keys, position)
        });
        places.map(|(number, row)| (&generation.batches[number as usize], row))
    }

    fn is_own(&self, batch: &RowBatch, position: usize) -> bool {
        self.recompute.is_none_or(|recompute| match &batch.recompute {
            Some(own) => Arc::ptr_eq(own, recompute),
            None => recompute.has_computed(self.tombstones.newest_for_row(self.keys, position)),
        })
    }
}
