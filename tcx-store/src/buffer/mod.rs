//! The write buffer: rows that are accepted and readable, but not sealed yet.

pub(crate) mod fate;
pub(crate) mod generation;
mod order;
mod settled;
pub(crate) mod wanted;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Instant;

use crate::buffer::fate::Fate;
use crate::buffer::generation::{Generation, Generations, Newest};
use crate::buffer::wanted::Wanted;
use crate::changes::{Replacement, Tombstones};
use crate::computed::RowBatch;
use crate::error::Error;
use crate::schema::key::Keys;

/// How much is in the buffer, and why nothing more is taken while writing is off.
#[derive(Debug, Default)]
struct Room {
    rows: usize,
    bytes: usize,
    write_failure: Option<Error>,
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
    /// How many batches were accepted.
    accepted: AtomicU64,
    /// How many batches were recomputed; not those that take the place of rejected rows.
    recomputed: AtomicU64,
    /// Batches in the buffer; hits on an empty buffer take no lock.
    batches: AtomicUsize,
    room: Mutex<Room>,
    more_room: Condvar,
    flush_bytes: usize,
    most_bytes: usize,
}

impl WriteBuffer {
    pub(crate) fn new(flush_bytes: usize, most_bytes: usize) -> Self {
        // A full queue must be reason enough to seal, or the caller would wait for ever.
        let flush_bytes = flush_bytes.min(most_bytes / 2).max(1);
        let (generations, room) = (RwLock::default(), Mutex::default());
        Self {
            generations,
            accepted: AtomicU64::new(0),
            recomputed: AtomicU64::new(0),
            batches: AtomicUsize::new(0),
            room,
            more_room: Condvar::new(),
            flush_bytes,
            most_bytes,
        }
    }

    /// Takes rows, waiting for room; `seal` is called to make some. A batch larger than the whole queue is taken when the queue is
    /// empty. Returns how many of the rows have died since they were looked up, too.
    pub(crate) fn accept(&self, batch: &Arc<RowBatch>, seal: impl Fn()) -> (Accepted, usize) {
        let bytes = batch.bytes();
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        while room.write_failure.is_none() && room.bytes > 0 && room.bytes + bytes > self.most_bytes {
            seal();
            room = self.more_room.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(write_failure) = room.write_failure.clone() {
            drop(room);
            batch.lost(batch.rows(), &write_failure);
            return (Accepted::No, 0);
        }
        room.bytes += bytes;
        room.rows += batch.rows();
        // The room stays locked until the rows are where a seal finds them: a caller that waits for room must not ask
        // for a seal that has nothing to write yet.
        let mut generations = self.write();
        let is_counted = batch.recompute.as_ref().is_some_and(|recompute| !recompute.rejects());
        let recomputed = if is_counted { self.recomputed.load(Ordering::Relaxed) + 1 } else { 0 };
        let number = self.accepted.load(Ordering::Relaxed) + 1;
        let (before, after, died) = generations.push(batch.clone(), number, recomputed);
        // A reader that sees the numbers finds the rows.
        self.accepted.store(number, Ordering::Release);
        self.recomputed.fetch_max(recomputed, Ordering::Release);
        self.batches.fetch_add(1, Ordering::Release);
        let accepted = if before < self.flush_bytes && after >= self.flush_bytes {
            Accepted::Full
        } else if before == 0 {
            Accepted::First
        } else {
            Accepted::Yes
        };
        (accepted, died)
    }

    /// How many batches were accepted: a search of the buffer after this finds them, or they are sealed or dead.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    /// How many batches were recomputed: a search of the buffer after this finds them, or they are sealed.
    pub(crate) fn recomputed(&self) -> u64 {
        self.recomputed.load(Ordering::Acquire)
    }

    /// Finds rows by key. `found` is called for each, and for each that is another recompute session's.
    pub(crate) fn find(
        &self,
        wanted: &Wanted<'_>,
        positions: impl Iterator<Item = usize>,
        mut found: impl FnMut(usize, Newest),
    ) {
        if self.batches.load(Ordering::Acquire) == 0 {
            return;
        }
        let generations = self.read();
        for position in positions {
            if let Some(newest) = generations.find(wanted, position) {
                found(position, newest);
            }
        }
    }

    /// Whether it has a row of a key and view that is not served: it is too old, or a change that cannot be read may have killed it.
    pub(crate) fn holds(&self, keys: &Keys, position: usize) -> bool {
        self.batches.load(Ordering::Acquire) > 0 && self.read().hold(keys, position)
    }

    /// The rows of each batch that none of these tombstones kills and whose source has not changed.
    pub(crate) fn alive(&self, tombstones: &Tombstones) -> Vec<(Arc<RowBatch>, Vec<usize>)> {
        self.read().alive(tombstones)
    }

    /// Every batch whose source has not changed, its rows dead or not.
    pub(crate) fn all_batches(&self) -> Vec<Arc<RowBatch>> {
        self.read().all_batches().filter(|batch| batch.refused().is_none()).cloned().collect()
    }

    /// The rows that wait, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        (room.rows, room.bytes)
    }

    /// Since when the oldest row has waited to be sealed; the rows of `written`, the oldest generation, do not wait.
    pub(crate) fn oldest_since(&self, written: Option<&Weak<Generation>>) -> Option<Instant> {
        self.read().oldest_since(written)
    }

    /// Closes the active generation; what is accepted from now on belongs to the next.
    pub(crate) fn freeze(&self) {
        self.write().freeze();
    }

    /// The generation to write next; `written` is the oldest, if its rows are written and on their way to the disk.
    pub(crate) fn oldest_after(&self, written: Option<&Weak<Generation>>) -> Option<Arc<Generation>> {
        self.read().after(written).cloned()
    }

    /// What has become of the batches of a frozen generation; `None` once it has been released.
    pub(crate) fn fates(&self, generation: &Arc<Generation>) -> Option<Arc<Vec<Fate>>> {
        self.read().fates(generation)
    }

    /// Keeps what has become of the batches of a frozen generation, for which `replacements` were written. Calls `show`, which
    /// shows readers these tombstones: before this they would kill the rows that they make way for, and without them older
    /// rows would be served again. Returns how many rows of later generations have died.
    pub(crate) fn settle(
        &self,
        generation: &Arc<Generation>,
        fates: &Arc<Vec<Fate>>,
        replacements: &[Replacement],
        show: impl FnOnce(),
    ) -> usize {
        let mut generations = self.write();
        let died = generations.settle(generation, fates, replacements);
        show();
        died
    }

    /// These tombstones for rows of the oldest generation were found to be written, after an error. Returns how many rows of later
    /// generations have died.
    pub(crate) fn outlive_found(&self, found: &[Replacement]) -> usize {
        self.write().outlive_found(found)
    }

    fn read(&self) -> RwLockReadGuard<'_, Generations> {
        self.generations.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Generations> {
        self.generations.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the oldest generation: its rows are in the snapshot now, or never will be.
    pub(crate) fn release_oldest(&self) {
        let released = self.write().release_oldest();
        let Some(released) = released else { return };
        let Generation { batches, bytes, .. } = &*released.generation;
        self.batches.fetch_sub(batches.len(), Ordering::Release);
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.bytes = room.bytes.saturating_sub(*bytes);
        room.rows = room.rows.saturating_sub(batches.iter().map(|batch| batch.rows()).sum());
        drop(room);
        self.more_room.notify_all();
    }

    /// Turns writing off for this reason, or on; returns the previous reason.
    pub(crate) fn set_write_failure(&self, write_failure: Option<Error>) -> Option<Error> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut room.write_failure, write_failure);
        drop(room);
        self.more_room.notify_all();
        before
    }

    /// Why writing is off, if it is.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner).write_failure.clone()
    }
}
