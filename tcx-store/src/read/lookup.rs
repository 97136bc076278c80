//! The rows of a batch: where each was found.

mod copy;
mod found;
mod hashes;
mod sample;

use std::collections::HashSet;
use std::sync::Arc;

use crate::changes::{Seen, Tombstones};
use crate::computed::RowBatch;
use crate::computed::attestation::Attestation;
use crate::computed::losses::Losses;
use crate::computed::recompute::RecomputeSession;
use crate::error::Result;
use crate::read::destination::{Copied, Destinations};
use crate::read::loaded::LoadedRows;
use crate::schema::column::Column;
use crate::schema::key::{Keys, TakeBits};
use crate::schema::leaf::Leaf;
use crate::schema::spec::Spec;
use crate::schema::stamp::stamp_leaf;
use crate::segment::Segment;
use crate::segment::memory_cache::CachedPart;
use crate::stats::causes::{Cause, MissCauses};
use hashes::Hashes;
use sample::Sample;

/// Where the rows are.
#[derive(Debug)]
enum Source {
    Segment(Arc<Segment>),
    Batch(Arc<RowBatch>),
    Loaded(LoadedRows),
    /// Rows that were decompressed with few others, or none: the number of each among them.
    Unpacked(Vec<(Arc<CachedPart>, u32)>),
}

/// The place of one row. A missing row has the source of [`MISSING`], which is no number of a source, and its row is a [`Cause`]:
/// only code that has checked the source may use the row.
#[derive(Clone, Copy, Debug)]
struct Address {
    source: u32,
    row: u32,
}

/// What the rows that complete a lookup are kept with.
pub(crate) struct Keeping<'a> {
    pub(crate) attestation: Option<Arc<Attestation>>,
    pub(crate) losses: Arc<Losses>,
    /// Whose rows take the place of those that were found and rejected.
    pub(crate) rejections: &'a Arc<RecomputeSession>,
}

/// What is counted of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// By their cause.
    pub(crate) missing: [usize; MissCauses::COUNT],
    /// Found in the write buffer.
    pub(crate) buffered: usize,
}

/// Rows that were decompressed together are kept for one of them if they are no more than this.
const FEW_ROWS: usize = 2;

const MISSING: Address = Address { source: u32::MAX, row: Cause::Absent as u32 };

/// The rows of a batch of keys, in the order asked, each found or missing.
///
/// It keeps what it found alive, whatever happens to the store. Rows of segments have been
/// verified when they were found: copying them cannot fail.
///
/// ```
/// # use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Spec};
/// # let output = ColumnType::Dense { dtype: DType::U8, shape: &[2] };
/// # let spec = Spec::new("m_v1", KeyType::Text, &output, Identity::default(), Vec::new())?;
/// let mut rows = spec.empty_lookup(Keys::text(["a", "b", "a"], 0)?);
/// assert_eq!((rows.missing(), rows.distinct_missing_positions()), (3, vec![0, 1]));
/// rows.complete(&[0, 1], vec![Column::dense(&[1, 2, 3, 4])])?;
/// assert_eq!((rows.missing(), rows.bytes(0, 2)), (0, &[1, 2][..]));
/// # Ok::<(), tcx_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Lookup {
    keys: Keys,
    hashes: Hashes,
    leaves: Arc<[Leaf]>,
    rows: Vec<Address>,
    /// It only grows: addresses are numbers in it, and what was found stays alive even if the row is rejected.
    sources: Vec<Source>,
    /// The number of `rows` without a source. Every change of an address keeps it: lookups end when it is 0.
    missing: usize,
    /// Rows that were found in the write buffer.
    buffered: usize,
    /// What was known of the changes before the rows that are missing were looked for.
    seen: Seen,
    /// Whether the rows that complete it were given, and cannot be computed again.
    puts: bool,
    /// Whether it was noted of the missing rows that others may serve some, since they were looked for.
    is_noted: bool,
    /// Only rows that it has computed are found.
    recompute: Option<Arc<RecomputeSession>>,
    /// The leaves that are wanted; all, if none is said.
    wanted: Option<Arc<[usize]>>,
    copied: Copied,
    /// Whether wide rows were read from the disk. They are in memory now, but not in the map of this process.
    is_cold: bool,
    sample: Sample,
}

impl Lookup {
    pub(crate) fn new(
        keys: Keys,
        leaves: Arc<[Leaf]>,
        seen: Seen,
        recompute: Option<Arc<RecomputeSession>>,
    ) -> Self {
        let missing = keys.len();
        let rows = vec![MISSING; missing];
        Self {
            rows,
            keys,
            hashes: Hashes::default(),
            leaves,
            sources: Vec::new(),
            missing,
            buffered: 0,
            seen,
            puts: false,
            is_noted: false,
            recompute,
            wanted: None,
            copied: Copied::default(),
            is_cold: false,
            sample: Sample::default(),
        }
    }

    /// What was known of the changes before the missing rows were looked for.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The missing rows are looked for again, and this is known of the changes now.
    pub(crate) fn see(&mut self, seen: Seen) {
        self.seen = seen;
    }

    /// Rows that are missing may be there all the same: some could not be read or found.
    pub(crate) fn doubt(&mut self, tombstones: &Tombstones) {
        self.seen.doubt(tombstones);
    }

    /// A change could not be read when the rows were looked for, so that some were missing which it need not name.
    pub(crate) fn hide(&mut self) {
        self.seen.hide();
    }

    /// What completes the lookup are values that were given: if a change that is not known now kills one, it is lost, and not
    /// only missing.
    pub(crate) fn for_puts(self) -> Self {
        Self { puts: true, ..self }
    }

    pub(crate) fn is_for_puts(&self) -> bool {
        self.puts
    }

    /// Only these leaves are going to be read, and the stamps if the keys have any.
    pub(crate) fn of_leaves(self, wanted: &Arc<[usize]>) -> Self {
        let stamps = self.keys.stamps().and(stamp_leaf(&self.leaves));
        let wanted =
            stamps.map_or_else(|| wanted.clone(), |stamps| wanted.iter().copied().chain([stamps]).collect());
        Self { wanted: Some(wanted), ..self }
    }

    /// These rows were copied when they were found.
    pub(crate) fn with_copied(self, copied: Copied) -> Self {
        Self { copied, ..self }
    }

    /// Wide rows were read from the disk.
    pub(crate) fn has_cold_rows(&mut self) {
        self.is_cold = true;
    }

    /// The leaves that are wanted; all, if none is said.
    pub(crate) fn wanted(&self) -> Option<&[usize]> {
        self.wanted.as_deref()
    }

    /// How many rows were asked for.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row was asked for.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows are missing, repeated keys counted each time.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// The positions of the missing rows, in order, each key once: what has to be computed.
    pub fn distinct_missing_positions(&self) -> Vec<usize> {
        let mut seen = HashSet::<_, TakeBits>::with_capacity_and_hasher(self.missing, TakeBits::default());
        self.all_missing_positions().filter(|&position| seen.insert(self.keys.hashed(position))).collect()
    }

    /// The keys that were asked for.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Completes the lookup with the rows of the keys at `positions`, one column per leaf, and keeps them nowhere else.
    ///
    /// # Errors
    ///
    /// Returns an error if the columns do not match the schema.
    ///
    /// # Panics
    ///
    /// If a position is not below [`len`](Self::len).
    pub fn complete(&mut self, positions: &[usize], columns: Vec<Column>) -> Result<()> {
        self.take(positions, columns, None).map(drop)
    }

    /// As [`complete`](Self::complete); the rows can be kept if they are to be.
    pub(crate) fn take(
        &mut self,
        positions: &[usize],
        mut columns: Vec<Column>,
        keeping: Option<Keeping<'_>>,
    ) -> Result<Arc<RowBatch>> {
        let mut keys = self.keys.select(positions);
        // Stamps are the last leaf of the schema, behind those of the output.
        columns.extend(keys.take_stamps());
        // What was known before the rows were looked for, not what is known now: a change in between may be of the inputs they were
        // computed from, and kills them.
        let mut batch =
            RowBatch::new(keys, columns, &self.leaves, self.seen.clone(), self.recompute.clone())?;
        if let Some(Keeping { attestation, losses, rejections }) = keeping {
            // Without a tombstone a row that was found would live on beside the one that is computed, whether it was rejected or not. Asked
            // before `fill`, which overwrites the causes.
            let was_found = |position: usize| self.cause(position).is_none() || self.is_replaced(position);
            let is_replacing = positions.iter().any(|&position| was_found(position));
            // A recompute session writes a tombstone for all its rows, found or not.
            batch.recompute = batch.recompute.or_else(|| is_replacing.then(|| rejections.clone()));
            (batch.attestation, batch.losses, batch.is_put) = (attestation, Some(losses), self.puts);
        }
        let batch = Arc::new(batch);
        self.fill(&batch, positions);
        Ok(batch)
    }

    /// Whether this is a lookup of the store with these leaves.
    pub(crate) fn has_leaves(&self, leaves: &Arc<[Leaf]>) -> bool {
        Arc::ptr_eq(&self.leaves, leaves)
    }

    pub(crate) fn recompute(&self) -> Option<&Arc<RecomputeSession>> {
        self.recompute.as_ref()
    }

    #[inline]
    pub(crate) fn is_missing(&self, position: usize) -> bool {
        self.rows[position].source == MISSING.source
    }

    /// The positions that are missing, in order, with every position of a repeated key.
    pub fn all_missing_positions(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.rows.len()).filter(|&position| self.is_missing(position))
    }

    /// Notes why a missing row is missing. Not for a row that [is replaced](Self::is_replaced): its cause decides that the row which
    /// is computed gets a tombstone.
    pub(crate) fn missed(&mut self, position: usize, cause: Cause) {
        // Of a row that was found, this would be another address.
        debug_assert!(self.is_missing(position), "row {position} is found");
        self.rows[position].row = cause as u32;
    }

    /// A row that was found is missing, for this cause.
    pub(crate) fn reopen(&mut self, position: usize, cause: Cause) {
        if !self.is_missing(position) {
            self.missing += 1;
            let source = &self.sources[self.rows[position].source as usize];
            // Saturating: a row that completed the lookup is in a batch too, and was not counted.
            self.buffered = self.buffered.saturating_sub(usize::from(matches!(source, Source::Batch(_))));
        }
        self.rows[position] = Address { source: MISSING.source, row: cause as u32 };
        // Or `copy_rest` would leave the rejected row in the caller's memory. A lookup that still has its destinations keeps its own
        // record of copies, which the caller of this corrects.
        self.copied.forget(position);
    }

    /// Whether a row of the key was found that is not to be served, or, where it need not be as good as the new one, may be served by others.
    pub(crate) fn is_replaced(&self, position: usize) -> bool {
        match self.cause(position) {
            None => false,
            Some(Cause::Rejected | Cause::Outdated) => true,
            // A value that is put takes its place for others, too, and so does a row with a stamp: that one may have another, also if it could
            // only not be read. Without stamps, a row that is computed again is as good as that one, and worth no tombstone.
            Some(cause) => {
                let (has_stamps, is_unread) = (self.keys.stamps().is_some(), self.seen.is_in_doubt);
                (self.puts || has_stamps) && Self::is_elsewhere(cause) || has_stamps && is_unread
            }
        }
    }

    /// Whether a row that is missing for this cause may be served by others: it is too old for this process only, or another block of its
    /// segment is damaged, or this process does not know its codec.
    pub(crate) fn is_elsewhere(cause: Cause) -> bool {
        matches!(cause, Cause::Expired | Cause::Damaged | Cause::Unreadable)
    }

    /// The missing rows are looked for: what was noted of them before says nothing any more.
    pub(crate) fn forget_notes(&mut self) {
        self.is_noted = false;
    }

    /// Which of the missing rows others may serve is to be noted, unless it was.
    pub(crate) fn is_to_be_noted(&mut self) -> bool {
        !std::mem::replace(&mut self.is_noted, true)
    }

    /// Why a row is missing, if it is.
    pub(crate) fn cause(&self, position: usize) -> Option<Cause> {
        self.is_missing(position).then(|| Cause::at(self.rows[position].row))
    }

    /// Rows of other stamps than those of the keys are missing, wherever they were copied.
    pub(crate) fn reject_outdated(&mut self, destinations: &mut Destinations<'_, '_>) {
        // `of_leaves` adds this leaf to those that are wanted: its bytes were verified when the row was found.
        let Some(leaf) = self.keys.stamps().and(stamp_leaf(&self.leaves)) else { return };
        for position in 0..self.len() {
            if !self.is_missing(position) && self.keys.is_outdated(position, self.bytes(leaf, position)) {
                self.reopen(position, Cause::Outdated);
                destinations.forget(position);
            }
        }
    }

    /// What is counted of the lookup.
    pub(crate) fn counts(&self) -> Counts {
        Counts { missing: self.causes(), buffered: self.buffered }
    }

    /// How many rows are missing for each cause.
    pub(crate) fn causes(&self) -> [usize; MissCauses::COUNT] {
        let mut counts = [0; MissCauses::COUNT];
        if self.missing == 0 {
            return counts;
        }
        for address in self.rows.iter().filter(|address| address.source == MISSING.source) {
            // The row of a missing one is always a cause: `MISSING`, `missed` and `reopen` write nothing else.
            counts[address.row as usize] += 1;
        }
        counts
    }

    /// Waits until the rows that are found in segments are in memory. The system reads those of a batch at the same time.
    pub(crate) fn bring_into_memory(&self) {
        for addresses in self.rows.chunks(256) {
            let stored = || {
                addresses.iter().filter_map(|address| match self.sources.get(address.source as usize) {
                    Some(Source::Segment(segment)) => Some((segment, address.row as usize)),
                    _ => None,
                })
            };
            stored().for_each(|(segment, row)| segment.announce(row));
            stored().for_each(|(segment, row)| segment.touch(row));
        }
    }
}

impl Spec {
    /// A lookup that finds nothing and belongs to no store: its rows are computed and kept nowhere.
    pub fn empty_lookup(&self, keys: Keys) -> Lookup {
        Lookup::new(keys, self.leaves.clone().into(), Seen::default(), None)
    }
}
