//! The rows of the write buffer in the order they were accepted: which of several rows of a sample is served, and what
//! becomes of each until it is sealed.
//!
//! Of several live rows of one key and view one is the *newest*: a recomputed row before any other, since what was
//! looked up before the recomputed row was accepted and computed meanwhile is older than it; otherwise the one that was
//! accepted last. A row that takes the place of a rejected one yields to those that were recomputed since it was looked up.
//! The newest is served, and the only one that is sealed, so that no value changes by being flushed. The others are kept
//! until then: the source of the newest may change, and it is not written. They do not come back if it dies by its age, though
//! they may be younger: the age of a row is the time at which it was computed, and not what it was computed from.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::buffer::fate::{self, Fate};
use crate::buffer::order::{Age, newest_in_time};
use crate::buffer::settled::{Settled, last_of, make_way_for_expired};
use crate::buffer::wanted::{WaitingRow, Wanted};
use crate::changes::{Expired, Replacement, Tombstones};
use crate::computed::RowBatch;
use crate::schema::key::{KeyHash, KeySeed, Keys, TakeBits};

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
        let (number, seed) = (self.batches.len() as u32, KeySeed::of_process());
        for row in 0..batch.rows() {
            let place = (number, row as u32);
            if let Some(older) = self.index.insert(batch.keys.hash(row, seed), place) {
                self.older.insert(place, older);
            }
        }
        self.replaces |= batch.recompute.is_some();
        self.bytes += batch.bytes();
        self.since.get_or_insert_with(Instant::now);
        self.batches.push(batch);
    }

    /// The rows of this hash, the one that was accepted last first.
    fn chain<'a>(&'a self, newest: Option<&'a RowPlace>) -> impl Iterator<Item = RowPlace> + Clone {
        std::iter::successors(newest, |place| self.older.get(place)).copied()
    }

    /// Of the rows of a key and view the one that was accepted last first.
    pub(super) fn find(&self, keys: &Keys, position: usize) -> impl Iterator<Item = RowPlace> + Clone {
        self.chain(self.index.get(&keys.hash(position, KeySeed::of_process()))).filter(
            move |&(number, row)| {
                let own = &self.batches[number as usize].keys;
                own.key(row as usize) == keys.key(position) && own.view() == keys.view()
            },
        )
    }

    /// Compares every row with all tombstones up to `newest`, and leaves of several live rows of a key and view the newest.
    /// Returns how many rows have died.
    pub(crate) fn advance(&self, fates: &mut [Fate], tombstones: &Tombstones, newest: u64) -> usize {
        let gone = fate::gone(fates, &self.batches);
        fates.iter_mut().for_each(Fate::restore);
        fate::advance(fates, &self.batches, tombstones, newest);
        self.keep_newest(fates);
        fate::gone(fates, &self.batches).saturating_sub(gone)
    }

    /// Once every row has been compared with the same tombstones, one that comes later kills all rows of a key and view or
    /// none: what is left of them now is the newest, as long as its source has not changed. If its time is over, so is that of the
    /// others.
    fn keep_newest(&self, fates: &mut [Fate]) {
        if self.older.is_empty() {
            // Most generations: no sample was computed twice, and no row need be looked at.
            return;
        }
        for end in self.index.values().filter(|place| self.older.contains_key(place)) {
            let is_withdrawn = |&(number, row): &RowPlace| fates[number as usize].is_withdrawn(row as usize);
            let mut left: Vec<RowPlace> =
                self.chain(Some(end)).filter(|place| !is_withdrawn(place)).collect();
            // Most often all have one key: only a few hashes belong to several.
            while let Some(&first) = left.first() {
                let (own, others) = left.into_iter().partition(|&place| self.have_one_key(first, place));
                self.keep_newest_of(own, fates);
                left = others;
            }
        }
    }

    /// Of these rows of one key and view, of which the one that was accepted last is the first.
    fn keep_newest_of(&self, rows: Vec<RowPlace>, fates: &mut [Fate]) {
        let is_over = |(number, row): RowPlace| fates[number as usize].is_killed(row as usize);
        let newest = newest_in_time(&rows, |(number, _)| self.age(number, fates), is_over);
        for (number, row) in rows.into_iter().filter(|place| Some(*place) != newest) {
            fates[number as usize].supersede(row as usize, self.batches[number as usize].rows());
        }
    }

    /// How many of these rows of a batch, which have died, were the newest of their keys: not those that a newer one was to be kept instead
    /// of, whose source has not changed.
    pub(crate) fn count_newest(&self, number: usize, rows: &[usize], fates: &[Fate]) -> usize {
        let is_newest = |row: usize| {
            let place = (number as u32, row as u32);
            let is_kept = |&(other, _): &RowPlace| self.batches[other as usize].refused().is_none();
            let rows: Vec<_> = self.find(&self.batches[number].keys, row).filter(is_kept).collect();
            // A dead one says nothing of what was looked up since.
            let is_over = |own: RowPlace| own != place && fates[own.0 as usize].is_killed(own.1 as usize);
            newest_in_time(&rows, |(number, _)| self.age(number, fates), is_over) == Some(place)
        };
        rows.iter().filter(|row| is_newest(**row)).count()
    }

    /// The rows that were to take the place of others and have died by their age since the last call.
    pub(crate) fn take_expired(&self, fates: &mut [Fate]) -> Expired {
        let mut expired = Expired::default();
        let news = self
            .batches
            .iter()
            .zip(fates)
            .filter_map(|(batch, fate)| fate.is_news().then_some((batch, fate)));
        for (batch, fate) in news {
            let Some(replacing) = fate.replacing(batch) else { continue };
            for row in (0..batch.rows()).filter(|&row| fate.has_expired(row)) {
                expired.add(batch.keys.key(row), batch.keys.view(), replacing);
            }
        }
        expired
    }

    fn age(&self, number: u32, fates: &[Fate]) -> Age {
        Age::of(&self.batches[number as usize], &fates[number as usize])
    }

    fn have_one_key(&self, (a, row_of_a): RowPlace, (b, row_of_b): RowPlace) -> bool {
        let (a, b) = (&self.batches[a as usize].keys, &self.batches[b as usize].keys);
        a.view() == b.view() && a.key(row_of_a as usize) == b.key(row_of_b as usize)
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
    /// `accepted` counts the batches up to this one, `recomputed` those that were recomputed, if this one was.
    pub(crate) fn push(
        &mut self,
        batch: Arc<RowBatch>,
        accepted: u64,
        recomputed: u64,
    ) -> (usize, usize, usize) {
        let (mut fate, mut died) = Fate::accepted(&batch);
        (fate.accepted, fate.recomputed) = (accepted, recomputed);
        died += make_way_for_expired(&mut fate, &batch);
        let Active { generation, fates } = &mut self.active;
        let before = generation.bytes;
        fates.push(fate);
        generation.push(batch);
        (before, generation.bytes, died)
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

    /// The rows of each batch that none of these tombstones kills and whose source has not changed.
    pub(crate) fn alive(&self, tombstones: &Tombstones) -> Vec<(Arc<RowBatch>, Vec<usize>)> {
        let active = (&self.active.generation, &*self.active.fates);
        let frozen = self.frozen.iter().map(|frozen| (&*frozen.generation, &**frozen.fates));
        let batches =
            frozen.chain([active]).flat_map(|(generation, fates)| generation.batches.iter().zip(fates));
        let alive = batches.map(|(batch, fate)| {
            let is_alive = |row: &usize| {
                (batch.refused().is_none() || fate.has_sealed(*row))
                    && !fate.is_killed(*row)
                    && !fate.is_over(tombstones, batch, 0)
                    && !fate.kill_row(tombstones, &batch.keys, *row)
            };
            (batch.clone(), (0..batch.rows()).filter(is_alive).collect())
        });
        alive.collect()
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
    /// `replacements` were accepted are newer than them, unless they yield to them. What makes way for its rows that were sealed, or have
    /// died by their age, dies. Returns how many of the later rows have died.
    pub(crate) fn settle(
        &mut self,
        generation: &Arc<Generation>,
        fates: &Arc<Vec<Fate>>,
        replacements: &[Replacement],
    ) -> usize {
        let at = self.frozen.iter().position(|frozen| frozen.is(Arc::as_ptr(generation)));
        if let Some(at) = at {
            self.frozen[at].fates = fates.clone();
        }
        let later = at.map_or(0, |at| at + 1);
        let settled = Settled { generation, fates, last: last_of(generation, fates) };
        let frozen = self.frozen.range_mut(later..);
        let frozen = frozen.map(|own| (&own.generation.batches, Arc::make_mut(&mut own.fates)));
        let Active { generation, fates } = &mut self.active;
        let mut died = 0;
        for (batches, fates) in frozen.chain(std::iter::once((&generation.batches, fates))) {
            died += settled.supersede(fates, batches);
            for Replacement { number, before, .. } in replacements {
                died += fate::outlive(fates, batches, before, *number);
            }
        }
        died
    }

    /// These tombstones for rows of the oldest generation were found to be written, after an error: what was recomputed later outlives
    /// them. Returns how many of the later rows have died.
    pub(crate) fn outlive_found(&mut self, found: &[Replacement]) -> usize {
        // A generation that made an attempt stays the oldest until it has been sealed: later ones wait for it.
        let frozen = self.frozen.iter_mut().skip(1);
        let frozen = frozen.map(|own| (&own.generation.batches, Arc::make_mut(&mut own.fates)));
        let Active { generation, fates } = &mut self.active;
        let mut died = 0;
        for (batches, fates) in frozen.chain(std::iter::once((&generation.batches, fates))) {
            died += found.iter().map(|found| fate::outlive_found(fates, batches, found)).sum::<usize>();
        }
        died
    }

    /// Whether there is a row of a key and view that no change has killed yet as far as it has been compared, however old it is.
    pub(crate) fn hold(&self, keys: &Keys, position: usize) -> bool {
        let active = (&self.active.generation, &*self.active.fates);
        let frozen = self.frozen.iter().map(|frozen| (&*frozen.generation, &**frozen.fates));
        let mut generations = std::iter::once(active).chain(frozen);
        generations.any(|(own, fates)| {
            own.find(keys, position).any(|(number, row)| !fates[number as usize].is_killed(row as usize))
        })
    }

    /// The newest live row of a key and view.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, position: usize) -> Option<Newest> {
        // Most rows that are looked up are not buffered: one probe of each index says so.
        let hash = wanted.keys.hash(position, KeySeed::of_process());
        let is_known = |own: &Generation| own.index.contains_key(&hash);
        if !is_known(&self.active.generation) && !self.frozen.iter().any(|own| is_known(&own.generation)) {
            return None;
        }
        let active = (&self.active.generation, &*self.active.fates);
        let frozen = self.frozen.iter().rev().map(|frozen| (&*frozen.generation, &**frozen.fates));
        let generations = std::iter::once(active).chain(frozen);
        let mut last_first = generations.flat_map(|(own, fates)| wanted.rows(own, fates, position));
        let last = last_first.next()?;
        // Most often there is no other, and nothing is allocated.
        let mut rows: Vec<_> = last_first.collect();
        let newest = if rows.is_empty() {
            Some(last).filter(|row| !row.is_over)
        } else {
            rows.insert(0, last);
            newest_in_time(&rows, |row| Age::of(row.batch, row.fate), |row| row.is_over)
        };
        let WaitingRow { batch, row, .. } = newest?;
        Some(if wanted.is_own(batch, position) {
            Newest::Own(BufferedRow { batch: batch.clone(), row })
        } else {
            Newest::OfOthers
        })
    }
}
