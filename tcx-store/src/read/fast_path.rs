//! The short way from keys to rows, for segments whose rows are served as they stand in the map: nearly all of them, nearly
//! always. What it cannot decide for certain is left to the long way.
//!
//! The places in memory that a key leads to are far apart: the line of the index, what says where the key of the row is, the
//! key, and the row. A few keys take each step together, and what they need for the next one is asked for meanwhile; where
//! rows are wanted at a destination they are copied as soon as they are found, so that memory is busy with both.

use std::ops::Range;

use crate::changes::Tombstones;
use crate::index::{Candidate, Look, Place, Table};
use crate::live::snapshot::IndexedRun;
use crate::read::destination::Destinations;
use crate::read::lookup::Lookup;
use crate::schema::key::KeyHash;
use crate::segment::{Plain, PlainKey};

/// Keys that take a step together: enough for memory to answer meanwhile, and few enough that what it brings stays in the
/// second-level cache while wide rows are copied.
const STEP: usize = 8;

/// A key is looked for in so many lines after its own. Nearly all are in the first or second, but a run may be made of anything.
const MOST_LINES: u8 = 8;

/// A segment that no key has led to yet.
const NOT_MET: u32 = u32::MAX;
/// A segment to whose rows the short way does not lead.
const NOT_PLAIN: u32 = u32::MAX - 1;

/// A run, and what is known of the segments it leads to.
pub(crate) struct Express<'a> {
    indexed: &'a IndexedRun,
    table: Table<'a>,
    tombstones: &'a Tombstones,
    /// By the segment's number in the run: its number among those that were met.
    numbers: Vec<u32>,
    met: Vec<Met<'a>>,
    /// A key that may stand in the line after this one comes once more.
    looks: Vec<Glance>,
    leads: Vec<Lead>,
    /// Rows that were found and are not copied yet.
    run: FoundRun,
}

/// Rows that stand one after the other both in a segment and in the batch: they are copied as one.
#[derive(Clone, Copy, Default)]
struct FoundRun {
    position: usize,
    /// The number of the segment among those that were met.
    met: u32,
    row: u32,
    rows: u32,
}

/// A line to be looked at.
#[derive(Clone, Copy)]
struct Glance {
    hash: KeyHash,
    place: Place,
    position: u32,
    /// How many lines were looked at before.
    before: u8,
}

/// A segment that a key has led to.
struct Met<'a> {
    plain: Plain<'a>,
    /// Its number in the lookup.
    source: u32,
}

/// Where a key leads to.
#[derive(Clone, Copy)]
struct Lead {
    position: u32,
    /// The number of the segment among those that were met.
    met: u32,
    row: u32,
    key: PlainKey,
}

/// What is looked for, and where its rows are to be copied.
pub(crate) struct Asked<'l, 'a, 'd> {
    pub(crate) lookup: &'l mut Lookup,
    pub(crate) destinations: &'l mut Destinations<'a, 'd>,
}

impl<'a> Express<'a> {
    pub(crate) fn new(indexed: &'a IndexedRun, tombstones: &'a Tombstones) -> Self {
        let numbers = vec![NOT_MET; indexed.segments.len()];
        let (met, looks, leads, run) = (Vec::new(), Vec::new(), Vec::new(), FoundRun::default());
        Self { indexed, table: indexed.run.table(), tombstones, numbers, met, looks, leads, run }
    }

    /// Finds rows that are missing, and copies them to their destinations. Those of which nothing can be said here are added to
    /// `rest`.
    pub(crate) fn find(&mut self, asked: &mut Asked<'_, '_, '_>, rest: &mut Vec<usize>) {
        let (table, lookup) = (self.table, &*asked.lookup);
        // Of a replacer's rows each is looked at by itself.
        if lookup.replacer().is_some() || u32::try_from(lookup.len()).is_err() {
            return rest.extend(lookup.missing_rows());
        }
        self.looks.reserve(lookup.missing() + STEP);
        self.looks.extend(lookup.missing_rows().map(|position| {
            let hash = lookup.keys().hash(position);
            Glance { hash, place: table.home(hash), position: position as u32, before: 0 }
        }));
        self.leads.reserve(self.looks.len());
        let (mut looked, mut found, mut confirmed) = (0, 0, 0);
        self.prefetch(0..STEP);
        while looked < self.looks.len() || confirmed < self.leads.len() {
            // Those that come once more are added behind it.
            let end = self.looks.len().min(looked + STEP);
            self.prefetch(end..end + STEP);
            let known = self.leads.len();
            self.look(asked, looked..end, rest);
            self.locate(found..known);
            self.confirm(asked, confirmed..found, rest);
            (looked, found, confirmed) = (end, known, found);
        }
        self.copy_run(asked);
    }

    #[inline]
    fn prefetch(&self, looks: Range<usize>) {
        let end = looks.end.min(self.looks.len());
        for look in self.looks.get(looks.start..end).unwrap_or_default() {
            self.table.prefetch(look.place);
        }
    }

    /// First step: a line of the index.
    #[inline]
    fn look(&mut self, asked: &mut Asked<'_, '_, '_>, looks: Range<usize>, rest: &mut Vec<usize>) {
        for number in looks {
            let look = self.looks[number];
            match self.table.look(look.hash, look.place) {
                Ok(Look::Found(Candidate { segment, row, .. })) => match self.follow(asked, segment, row) {
                    Some(met) => {
                        let key = PlainKey::default();
                        self.leads.push(Lead { position: look.position, met, row, key });
                    }
                    None => rest.push(look.position as usize),
                },
                Ok(Look::Absent) => {}
                Ok(Look::Beyond(place)) if look.before < MOST_LINES => {
                    self.table.prefetch(place);
                    self.looks.push(Glance { place, before: look.before + 1, ..look });
                }
                Ok(Look::Beyond(_)) | Err(_) => rest.push(look.position as usize),
            }
        }
    }

    /// Where a candidate leads to. What says where its key is is on its way.
    #[inline]
    fn follow(&mut self, asked: &mut Asked<'_, '_, '_>, segment: u16, row: u32) -> Option<u32> {
        let mut met = *self.numbers.get(usize::from(segment))?;
        if met >= NOT_PLAIN {
            met = self.meet(asked, usize::from(segment), met)?;
        }
        let plain = &self.met[met as usize].plain;
        if row as usize >= plain.rows() {
            return None;
        }
        plain.prefetch_key(row as usize);
        Some(met)
    }

    /// What all rows of a segment have in common is looked at once.
    #[cold]
    fn meet(&mut self, asked: &mut Asked<'_, '_, '_>, number: usize, before: u32) -> Option<u32> {
        if before == NOT_PLAIN {
            return None;
        }
        self.numbers[number] = NOT_PLAIN;
        let (lookup, segment) = (&mut *asked.lookup, self.indexed.segments.get(number)?.as_ref()?);
        if self.tombstones.may_kill(segment.base()) {
            return None;
        }
        let plain = segment.plain(lookup.keys().view(), lookup.wanted(), asked.destinations.leaves())?;
        self.numbers[number] = self.met.len() as u32;
        self.met.push(Met { plain, source: lookup.add_source(segment) });
        Some(self.numbers[number])
    }

    /// Second step: where the key of the row is.
    #[inline]
    fn locate(&mut self, leads: Range<usize>) {
        for lead in &mut self.leads[leads] {
            lead.key = self.met[lead.met as usize].plain.find_key(lead.row as usize);
        }
    }

    /// Third step: the key itself, and the row.
    #[inline]
    fn confirm(&mut self, asked: &mut Asked<'_, '_, '_>, leads: Range<usize>, rest: &mut Vec<usize>) {
        for number in leads {
            let lead = self.leads[number];
            let (met, position) = (&self.met[lead.met as usize], lead.position as usize);
            if !met.plain.is_row_of(lead.row as usize, lead.key, asked.lookup.keys().key(position)) {
                rest.push(position);
                continue;
            }
            asked.lookup.found_open(position, met.source, lead.row);
            let FoundRun { position: first, met, row, rows } = self.run;
            if position == first + rows as usize && lead.row == row + rows && lead.met == met {
                self.run.rows += 1;
            } else {
                self.copy_run(asked);
                self.run = FoundRun { position, met: lead.met, row: lead.row, rows: 1 };
            }
        }
    }

    #[inline]
    fn copy_run(&mut self, asked: &mut Asked<'_, '_, '_>) {
        let FoundRun { position, met, row, rows } = std::mem::take(&mut self.run);
        if let Some(met) = self.met.get(met as usize).filter(|_| rows > 0) {
            let rows = row as usize..(row + rows) as usize;
            asked.destinations.copy(position, rows.len(), met.plain.copied(rows));
        }
    }
}
