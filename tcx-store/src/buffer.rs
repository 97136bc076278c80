//! The write buffer: rows that are accepted and readable, but not sealed yet.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::time::Instant;

use crate::attestation::Attestation;
use crate::changes::{Tombstones, now_millis};
use crate::column::Column;
use crate::error::{Error, Result};
use crate::fate::Fate;
use crate::key::{KeyHash, Keys, TakeBits};
use crate::replacer::Replacer;
use crate::schema::Leaf;

/// The rows that one computed batch brought.
#[derive(Debug)]
pub(crate) struct RowBatch {
    pub(crate) keys: Keys,
    pub(crate) columns: Vec<Column>,
    /// The newest change known when the rows were looked up.
    pub(crate) known: u64,
    /// Milliseconds since 1970.
    pub(crate) born: u64,
    /// Who computed the rows anew: they take the place of what was there.
    pub(crate) replacer: Option<Arc<Replacer>>,
    /// Asked before the rows become durable.
    pub(crate) attestation: Option<Arc<Attestation>>,
}

impl RowBatch {
    /// # Errors
    ///
    /// Columns that are not those of `leaves`, with one row a key.
    pub(crate) fn new(
        keys: Keys,
        columns: Vec<Column>,
        leaves: &[Leaf],
        known: u64,
        replacer: Option<Arc<Replacer>>,
    ) -> Result<Self> {
        if columns.len() != leaves.len() {
            let (expected, found) = (leaves.len(), columns.len());
            return Err(Error::invalid(format!("expected {expected} columns, found {found}")));
        }
        for (number, (column, leaf)) in columns.iter().zip(leaves).enumerate() {
            if !column.fits(leaf, keys.len(), columns.get(number + 1)) {
                let (name, kind, rows, bytes) = (&leaf.name, leaf.described(), keys.len(), column.bytes());
                let message = format!(
                    "column `{name}`: expected {rows} rows of {kind}, found {bytes} bytes that are not"
                );
                return Err(Error::invalid(message));
            }
        }
        Ok(Self { keys, columns, known, born: now_millis(), replacer, attestation: None })
    }

    pub(crate) fn rows(&self) -> usize {
        self.keys.len()
    }

    /// Why the rows are dropped, if their source has changed since they were computed.
    pub(crate) fn refused(&self) -> Option<&Error> {
        self.attestation.as_ref()?.refused()
    }

    /// The memory the rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.heap_bytes() + self.columns.iter().map(Column::heap_bytes).sum::<usize>()
    }
}

/// A row in the buffer.
pub(crate) struct BufferedRow {
    pub(crate) batch: Arc<RowBatch>,
    pub(crate) row: u32,
}

/// Batches that are sealed together.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    pub(crate) batches: Vec<Arc<RowBatch>>,
    index: HashMap<KeyHash, (u32, u32), TakeBits>,
    /// By a row of the index: the one before it. A row that was looked up long ago may be dead already.
    older: HashMap<(u32, u32), (u32, u32)>,
    bytes: usize,
    since: Option<Instant>,
}

impl Generation {
    fn push(&mut self, batch: Arc<RowBatch>) {
        let number = self.batches.len() as u32;
        for row in 0..batch.rows() {
            let place = (number, row as u32);
            if let Some(older) = self.index.insert(batch.keys.hash(row), place) {
                self.older.insert(place, older);
            }
        }
        self.bytes += batch.bytes();
        self.since.get_or_insert_with(Instant::now);
        self.batches.push(batch);
    }

    /// The batch's number and the row; of several rows of a key the newest first.
    fn find(&self, keys: &Keys, position: usize) -> impl Iterator<Item = (usize, u32)> {
        let newest = self.index.get(&keys.hash(position));
        let places = std::iter::successors(newest, |place| self.older.get(place));
        places.map(|&(number, row)| (number as usize, row)).filter(move |&(number, row)| {
            let own = &self.batches[number].keys;
            own.key(row as usize) == keys.key(position) && own.view() == keys.view()
        })
    }
}

/// A generation that is being sealed, and what became of its batches since they were accepted.
#[derive(Debug)]
struct Frozen {
    generation: Arc<Generation>,
    /// One for each batch.
    fates: Arc<Vec<Fate>>,
}

impl Frozen {
    fn is(&self, generation: *const Generation) -> bool {
        Arc::as_ptr(&self.generation) == generation
    }
}

#[derive(Debug, Default)]
struct Generations {
    active: Generation,
    frozen: VecDeque<Frozen>,
}

impl Generations {
    /// The oldest frozen generation but for `written`.
    fn after(&self, written: Option<&Weak<Generation>>) -> Option<&Frozen> {
        self.frozen.iter().find(|frozen| written.is_none_or(|written| !frozen.is(written.as_ptr())))
    }

    fn find(&self, wanted: &Wanted<'_>, position: usize) -> Option<BufferedRow> {
        let of_frozen = self.frozen.iter().rev().map(|frozen| (&*frozen.generation, Some(&*frozen.fates)));
        let mut newest_first = std::iter::once((&self.active, None)).chain(of_frozen);
        newest_first.find_map(|(generation, fates)| wanted.find(generation, fates, position))
    }
}

/// What a lookup asks the buffer for.
pub(crate) struct Wanted<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) tombstones: &'a Tombstones,
    pub(crate) replacer: Option<&'a Arc<Replacer>>,
}

impl Wanted<'_> {
    fn find(
        &self,
        generation: &Generation,
        fates: Option<&Vec<Fate>>,
        position: usize,
    ) -> Option<BufferedRow> {
        generation.find(self.keys, position).find_map(|(number, row)| {
            let batch = &generation.batches[number];
            let fate = fates.map(|fates| &fates[number]);
            let known = fate.map_or(batch.known, |fate| fate.number);
            let dead = fate.is_some_and(|fate| fate.is_dead(row as usize));
            let served = !dead
                && batch.refused().is_none()
                && !self.tombstones.kill_row(known, self.keys, position)
                && self.is_own(batch, position);
            served.then(|| BufferedRow { batch: batch.clone(), row })
        })
    }

    fn is_own(&self, batch: &RowBatch, position: usize) -> bool {
        self.replacer.is_none_or(|replacer| {
            batch.replacer.as_ref().is_some_and(|own| Arc::ptr_eq(own, replacer))
                || replacer.has_computed(self.tombstones.newest_for_row(self.keys, position))
        })
    }
}

/// How much is in the buffer, and why nothing more is taken while writing is off.
#[derive(Debug, Default)]
struct Room {
    rows: usize,
    bytes: usize,
    trouble: Option<Error>,
    /// Rows that were not taken, or taken and dropped, since the last flush, and why.
    dropped: Option<(usize, Error)>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// It is in the buffer.
    Yes,
    /// It is the first in the buffer: the writer has a time to keep now.
    First,
    /// It filled the buffer: there is a segment's worth to seal.
    Full,
    /// Writing is off: the rows are dropped.
    No,
}

/// The rows between a forward pass and the disk.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    generations: RwLock<Generations>,
    /// Batches in the buffer; hits on an empty buffer take no lock.
    batches: AtomicUsize,
    room: Mutex<Room>,
    more_room: Condvar,
    seal_bytes: usize,
    queue_bytes: usize,
}

impl WriteBuffer {
    pub(crate) fn new(seal_bytes: usize, queue_bytes: usize) -> Self {
        // A full queue must be reason enough to seal, or the caller would wait for ever.
        let seal_bytes = seal_bytes.min(queue_bytes / 2).max(1);
        let (generations, room) = (RwLock::default(), Mutex::default());
        Self {
            generations,
            batches: AtomicUsize::new(0),
            room,
            more_room: Condvar::new(),
            seal_bytes,
            queue_bytes,
        }
    }

    /// Takes rows, waiting for room; `seal` is called to make some. A batch larger than the whole queue is taken when the queue is empty.
    pub(crate) fn accept(&self, batch: &Arc<RowBatch>, seal: impl Fn()) -> Accepted {
        let bytes = batch.bytes();
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        while room.trouble.is_none() && room.bytes > 0 && room.bytes + bytes > self.queue_bytes {
            seal();
            room = self.more_room.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(trouble) = room.trouble.clone() {
            let dropped = room.dropped.take().map_or(0, |(rows, _)| rows);
            room.dropped = Some((dropped + batch.rows(), trouble));
            return Accepted::No;
        }
        room.bytes += bytes;
        room.rows += batch.rows();
        // The room stays locked until the rows are where a seal finds them: whoever waits for room must not ask for
        // one that has nothing to seal yet.
        let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        let before = generations.active.bytes;
        generations.active.push(batch.clone());
        self.batches.fetch_add(1, Ordering::Release);
        let after = generations.active.bytes;
        if before < self.seal_bytes && after >= self.seal_bytes {
            Accepted::Full
        } else if before == 0 {
            Accepted::First
        } else {
            Accepted::Yes
        }
    }

    /// Finds rows by key. `found` is called for each.
    pub(crate) fn find(
        &self,
        wanted: &Wanted<'_>,
        positions: impl Iterator<Item = usize>,
        mut found: impl FnMut(usize, BufferedRow),
    ) {
        if self.batches.load(Ordering::Acquire) == 0 {
            return;
        }
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        for position in positions {
            if let Some(row) = generations.find(wanted, position) {
                found(position, row);
            }
        }
    }

    /// Every batch whose source has not changed, its rows dead or not.
    pub(crate) fn all_batches(&self) -> Vec<Arc<RowBatch>> {
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        let frozen = generations.frozen.iter().flat_map(|frozen| &frozen.generation.batches);
        let all = frozen.chain(&generations.active.batches);
        all.filter(|batch| batch.refused().is_none()).cloned().collect()
    }

    /// The rows that wait, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        (room.rows, room.bytes)
    }

    /// Since when the oldest row has waited to be sealed; the rows of `written`, the oldest generation, do not wait.
    pub(crate) fn oldest_since(&self, written: Option<&Weak<Generation>>) -> Option<Instant> {
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        let frozen = generations.after(written);
        frozen.map_or(generations.active.since, |frozen| frozen.generation.since)
    }

    /// Closes the active generation; what is accepted from now on belongs to the next.
    pub(crate) fn freeze(&self) {
        let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        if !generations.active.batches.is_empty() {
            let generation = Arc::new(std::mem::take(&mut generations.active));
            let fates = Arc::new(generation.batches.iter().map(|batch| Fate::new(batch)).collect());
            generations.frozen.push_back(Frozen { generation, fates });
        }
    }

    /// The generation to write next; `written` is the oldest, if its rows are written and on their way to the disk.
    pub(crate) fn oldest_after(&self, written: Option<&Weak<Generation>>) -> Option<Arc<Generation>> {
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        generations.after(written).map(|frozen| frozen.generation.clone())
    }

    /// What has become of the batches of a frozen generation; nothing once it has been released.
    pub(crate) fn fates(&self, generation: &Arc<Generation>) -> Option<Arc<Vec<Fate>>> {
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        let frozen = generations.frozen.iter().find(|frozen| frozen.is(Arc::as_ptr(generation)));
        frozen.map(|frozen| frozen.fates.clone())
    }

    /// Keeps what has become of the batches of a frozen generation.
    pub(crate) fn set_fates(&self, generation: &Arc<Generation>, fates: Arc<Vec<Fate>>) {
        let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(frozen) = generations.frozen.iter_mut().find(|frozen| frozen.is(Arc::as_ptr(generation)))
        {
            frozen.fates = fates;
        }
    }

    /// Lets go of the oldest generation: its rows are in the snapshot now, or never will be.
    pub(crate) fn release_oldest(&self) {
        let released = {
            let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
            generations.frozen.pop_front()
        };
        let Some(released) = released else { return };
        let Generation { batches, bytes, .. } = &*released.generation;
        self.batches.fetch_sub(batches.len(), Ordering::Release);
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.bytes = room.bytes.saturating_sub(*bytes);
        room.rows = room.rows.saturating_sub(batches.iter().map(|batch| batch.rows()).sum());
        drop(room);
        self.more_room.notify_all();
    }

    /// Turns writing off for this reason, or on; tells what it was before.
    pub(crate) fn set_trouble(&self, trouble: Option<Error>) -> Option<Error> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut room.trouble, trouble);
        drop(room);
        self.more_room.notify_all();
        before
    }

    /// Rows that had been taken are dropped, for this reason.
    pub(crate) fn lose(&self, rows: usize, why: Error) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let before = room.dropped.take().map_or(0, |(rows, _)| rows);
        room.dropped = Some((before + rows, why));
    }

    /// How many rows were dropped since the last time this was asked, and why.
    pub(crate) fn take_dropped(&self) -> Option<(usize, Error)> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).dropped.take()
    }

    /// Why writing is off, if it is.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }
}
