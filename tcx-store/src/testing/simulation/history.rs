//! What has happened: the rows that were computed, and what was invalidated.

use std::collections::BTreeSet;

use super::places::Place;

/// Which rows an invalidation kills: in all views, unless it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Matcher {
    All,
    Keys(Vec<&'static str>),
    Prefix(&'static str),
    /// These keys, where rows of them are stored.
    Found(Vec<&'static str>),
    /// That of a key and a view: a recomputed row takes its place.
    Row(&'static str, u32),
    /// Those that were computed before this time of the folder, in milliseconds, and those with them in a segment.
    OlderThan(u64),
    /// These rows: their segments were removed.
    Evicted(BTreeSet<usize>),
    /// Any row: this change is damaged. As long as it is, all before it counts as dead for who reads it, and a repair may say so.
    Damaged(String),
}

impl Matcher {
    pub(super) fn matches(&self, key: &str, view: u32) -> bool {
        match self {
            Self::All | Self::Damaged(_) => true,
            Self::Keys(keys) | Self::Found(keys) => keys.contains(&key),
            Self::Prefix(prefix) => key.starts_with(prefix),
            Self::Row(own, of) => *own == key && *of == view,
            Self::OlderThan(_) | Self::Evicted(_) => false,
        }
    }
}

/// A row that was computed; its number is its value.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) view: u32,
    pub(super) identity: u8,
    pub(super) session: usize,
    /// The time of the folder by then, in milliseconds.
    pub(super) born: u64,
    /// The recompute session that computed it.
    pub(super) recompute: Option<usize>,
    /// When the lookup that missed it began, and when it ended.
    pub(super) looked_from: u64,
    pub(super) looked: u64,
    /// The folder that was in place when it began.
    pub(super) looked_in: Place,
    /// The invalidations whose numbers its lookup is sure to have known: they do not kill it.
    pub(super) settled: BTreeSet<usize>,
    /// Whether its lookup may have known a tombstone without the replacement that it commits: listings were late or incomplete.
    pub(super) is_astray: bool,
    pub(super) accepted: Option<u64>,
    /// The number of the seal that it is a part of, counted by its session.
    pub(super) generation: Option<usize>,
    /// When the first seal that it is a part of began.
    pub(super) sealing: Option<u64>,
    pub(super) acknowledged: Option<u64>,
    /// The folder that it was acknowledged in, if that is certain.
    pub(super) place: Option<Place>,
    /// The invalidation by which it takes the place of what was there.
    pub(super) replaces: Option<usize>,
    /// The stamp under which it was computed, where rows have stamps.
    pub(super) stamp: Option<u64>,
    /// It takes the place of a row that was found and rejected, or has another stamp, unless one was recomputed since: its lookup has
    /// counted those at some time between these.
    pub(super) rejects: Option<(u64, u64)>,
    /// It was put by this handle, which learns if it is lost.
    pub(super) put_by: Option<usize>,
}

impl Row {
    /// What orders the rows of a key and view that are sealed together: a recomputed one is newer than any other, then the
    /// one that was accepted last is.
    pub(super) fn age(&self) -> (bool, Option<u64>) {
        (self.recompute.is_some(), self.accepted)
    }

    /// Whether it is newer than another row of its key, view and session; `None` where that is not certain.
    pub(super) fn is_newer_than(&self, other: &Self) -> Option<bool> {
        if self.yields_to(other)? {
            return Some(false);
        }
        Some(other.yields_to(self)? || self.age() > other.age())
    }

    /// Whether it takes the place of a rejected row, and the other was recomputed since that was looked up.
    fn yields_to(&self, other: &Self) -> Option<bool> {
        let (Some((from, until)), Some(accepted)) = (self.rejects, other.accepted) else {
            return Some(false);
        };
        if other.recompute.is_none() || other.rejects.is_some() || accepted < from {
            return Some(false);
        }
        (accepted > until).then_some(true)
    }
}

/// What became of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It may happen at any time: it is not over, or has failed and is tried again.
    Open,
    /// It was reported to have happened by this time.
    Happened(u64),
    /// The process that made it died at this time: it has happened by then, or never will.
    Unknown(u64),
}

#[derive(Debug)]
pub(super) struct Invalidation {
    pub(super) matcher: Matcher,
    /// Who made it, if it was one of the simulated processes.
    pub(super) session: Option<usize>,
    pub(super) begun: u64,
    pub(super) outcome: Outcome,
    /// The rows that it makes room for.
    pub(super) spares: BTreeSet<usize>,
    /// The row that takes the place of those that it kills.
    pub(super) replaced_by: Option<usize>,
    /// When that row was accepted.
    pub(super) replaced_at: Option<u64>,
    /// Whether it kills nothing, since the tombstone that commits a recomputed row was not created yet.
    pub(super) is_to_come: bool,
    /// By age: the number of its change, once that was made, and the young rows that are in a segment with old ones.
    pub(super) change: Option<u64>,
    pub(super) joined: BTreeSet<usize>,
    /// The folder in which it happened, if that is certain: who opens another cannot know of it.
    pub(super) place: Option<Place>,
    /// The time of the folder when it had looked for old rows, in milliseconds: those that had expired by then may have been gone.
    pub(super) aged: Option<u64>,
}

impl Invalidation {
    /// Whether the row is dead for a process that knows this.
    pub(super) fn kills(&self, number: usize, row: &Row) -> bool {
        if let Matcher::OlderThan(limit) = self.matcher {
            let is_here = row.place.is_some() && row.place == self.place;
            return row.looked < self.begun && row.born < limit && is_here;
        }
        if let Matcher::Damaged(_) = self.matcher {
            // What a repair has made dead is evicted.
            return false;
        }
        if let Matcher::Evicted(rows) = &self.matcher {
            return rows.contains(&number) && row.place.is_some() && row.place == self.place;
        }
        if let Matcher::Found(_) = self.matcher
            && (row.place.is_none()
                || row.place != self.place
                || row.acknowledged.is_none_or(|at| at >= self.begun))
        {
            return false;
        }
        // A row that waits to take the place of others gets its number later than its lookup.
        let is_late = self.makes_way_for(row) && row.acknowledged.is_none_or(|at| at >= self.begun);
        row.looked < self.begun && !is_late && self.may_kill(number, row)
    }

    /// Whether it is the tombstone of a row that the row's own process has recomputed, which may be older than this recomputed row.
    fn makes_way_for(&self, row: &Row) -> bool {
        let is_seen = |at: u64| row.rejects.is_none_or(|(_, until)| at <= until);
        row.recompute.is_some() && self.session == Some(row.session) && self.replaced_at.is_some_and(is_seen)
    }

    pub(super) fn may_kill(&self, number: usize, row: &Row) -> bool {
        if let Matcher::OlderThan(limit) = self.matcher {
            return row.born < limit || self.joined.contains(&number);
        }
        if let Matcher::Evicted(rows) = &self.matcher {
            return rows.contains(&number);
        }
        !self.is_to_come && self.matcher.matches(row.key, row.view) && !self.spares.contains(&number)
    }
}
