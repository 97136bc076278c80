//! The keys of what is stored.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::live::damage::DamagedFiles;
use crate::live::folder::Stored;
use crate::segment::Segment;
use crate::storage::name::SegmentName;
use crate::sys::bytes::Random;

/// Which rows are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that are served.
    Served,
    /// Those too that wait for a change which cannot be found or read yet, and those that only other processes serve.
    There,
}

/// A row that is stored or waits to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) view: u32,
}

/// What became of a visit of all keys.
#[derive(Debug)]
pub(crate) struct Visit {
    /// An error if a file cannot be read now, or may have been misread.
    pub(crate) seen: Result<()>,
    /// Within [`Reach::There`], the segments with keys which are damaged for good: a process that has read them before serves their rows.
    pub(crate) unreadable: Vec<SegmentName>,
    /// The segments that were known, by the random bits of their names: the keys of each were visited, or those of what replaces it, unless
    /// this is an error or it is unreadable.
    pub(crate) known: HashSet<Random>,
}

impl Core {
    /// At most `most` of the stored keys of a view, to show what keys look like. Looks at few rows: it may return fewer than there
    /// are.
    pub(crate) fn some_keys(&self, view: u32, most: usize) -> Vec<Vec<u8>> {
        const LOOKED_AT: usize = 1000;
        let snapshot = self.unexpired();
        let stored = snapshot.segments.iter().flat_map(|segment| {
            let keys = (0..segment.rows()).filter_map(|row| segment.key(row));
            keys.map(|(key, own)| (key.to_vec(), own, segment.base()))
        });
        let stored = stored.take(LOOKED_AT);
        let alive =
            stored.filter(|(key, own, base)| *own == view && !snapshot.tombstones.kill(*base, key, *own));
        let mut keys: Vec<_> = alive.map(|(key, ..)| key).take(most).collect();
        for batch in self.buffer.all_batches().iter().filter(|batch| batch.keys.view() == view) {
            let more = most - keys.len();
            keys.extend((0..batch.rows()).take(more).map(|row| batch.keys.key(row).to_vec()));
        }
        keys
    }

    /// Whether a damaged segment may be sound at another look.
    fn may_be_sound(&self, segment: &Segment) -> bool {
        self.live().is_in_doubt(segment.name())
    }

    /// Takes a served segment of which a key does not verify out of service.
    fn doubt(&self, segment: &Arc<Segment>) {
        self.drop_damaged(&DamagedFiles { segments: vec![segment.clone()], ..DamagedFiles::default() });
    }

    /// Calls `see` with every row within `reach`. A key may come several times.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read now, or may have been misread; the keys of all other files have been visited. Keys that are
    /// damaged for good are left out.
    pub(crate) fn each_key(&self, reach: Reach, see: impl FnMut(StoredRow<'_>)) -> Result<()> {
        self.visit_keys(reach, see).seen
    }

    /// As [`each_key`](Self::each_key).
    pub(crate) fn visit_keys(&self, reach: Reach, mut see: impl FnMut(StoredRow<'_>)) -> Visit {
        let unread = |name: SegmentName| {
            let path = self.storage.path().join(name.to_string());
            let advice =
                "some of its rows may be meant; if that stays so, `tcx verify --repair` makes them dead";
            Error::io("cannot read all keys of", path, io::Error::other(advice))
        };
        // The buffer first: a row leaves it only after the snapshot holds its segment.
        let mut buffered = self.buffer.alive(&self.snapshot().tombstones.without_unread());
        if reach == Reach::Served {
            let oldest_kept = self.retention.oldest_kept();
            buffered.retain(|(batch, _)| batch.born >= oldest_kept);
        }
        let (snapshot, stored, known) = {
            // At one moment: a segment that waits may be served the next.
            let mut live = self.live();
            let snapshot = self.unexpired_with(&mut live);
            let stored = if reach == Reach::There {
                live.stored()
            } else {
                let served = snapshot.segments.clone();
                Stored { served, unread: live.unopened(), ..Stored::default() }
            };
            (snapshot, stored, live.segments.names().map(|name| name.random).collect())
        };
        let mut unreadable = stored.lost;
        let (served, mut first_unread) = (stored.served.iter().map(|segment| (segment, true)), stored.unread);
        for (segment, is_served) in served.chain(stored.others.iter().map(|segment| (segment, false))) {
            let failures = segment.failures();
            let mut is_damaged = false;
            let keys = (0..segment.rows()).filter_map(|row| {
                let key = segment.key(row);
                is_damaged |= key.is_none();
                key
            });
            // A change that cannot be read may have nothing to do with the rows of the others.
            let is_dead = |key: &[u8], view| {
                let (tombstones, base) = (&snapshot.tombstones, segment.base());
                if is_served {
                    tombstones.kill(base, key, view)
                } else {
                    tombstones.surely_kill(base, key, view)
                }
            };
            keys.filter(|(key, view)| !is_dead(key, *view))
                .for_each(|(key, view)| see(StoredRow { key: &key, view }));
            // Where a read has failed, that is why a key is missing.
            let has_failed = segment.failures() > failures;
            if is_damaged && !has_failed && is_served && reach == Reach::There {
                // What it stands for was not visited, and is served from now on.
                self.doubt(segment);
            }
            if has_failed || is_damaged && reach == Reach::There && (is_served || self.may_be_sound(segment))
            {
                first_unread = first_unread.or(Some(segment.name()));
            } else if is_damaged && reach == Reach::There {
                unreadable.push(segment.name());
            }
        }
        for (batch, rows) in &buffered {
            for &row in rows {
                let (key, view) = (batch.keys.key(row), batch.keys.view());
                see(StoredRow { key, view });
            }
        }
        Visit { seen: first_unread.map_or(Ok(()), |name| Err(unread(name))), unreadable, known }
    }
}
