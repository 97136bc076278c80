//! What changes say of whole segments: they name no key, so that they also hold for segments that come later.

use super::ages::{self, Age};
use super::dead_segments::{self, DeadSegment};
use super::evictions::{self, Eviction};
use crate::storage::name::SegmentName;
use crate::sys::bytes::{Cursor, Random};

/// A segment, as far as these changes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dated<'a> {
    /// The newest change that its rows know.
    pub(crate) base: u64,
    /// When its oldest row was computed, in milliseconds since 1970.
    pub(crate) born: u64,
    /// The random bits of its name.
    pub(crate) name: Random,
    /// What it was joined from.
    pub(crate) lineage: Lineage<'a>,
}

/// What a segment was joined from, one time after another; nothing, if it was sealed as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lineage<'a> {
    pub(crate) inputs: &'a [SegmentName],
    /// What these were joined from: the random bits of their names.
    pub(crate) ancestors: &'a [Random],
    /// Whether there were more than these.
    pub(crate) has_more: bool,
}

impl Lineage<'_> {
    /// Whether it was joined at all.
    pub(crate) fn is_joined(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Whether any of these may have been joined to it.
    pub(crate) fn may_have(&self, is_one: impl FnMut(Random) -> bool) -> bool {
        let names = self.inputs.iter().map(|input| input.random);
        self.has_more || names.chain(self.ancestors.iter().copied()).any(is_one)
    }
}

/// What changes say of whole segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) ages: Vec<Age>,
    pub(super) evictions: Vec<Eviction>,
    pub(super) dead: Vec<DeadSegment>,
}

impl Whole {
    /// Whether all rows of a segment are dead.
    pub(super) fn kills(&self, segment: Dated<'_>) -> bool {
        ages::kill(&self.ages, segment.base, segment.born)
            || dead_segments::since(&self.dead, segment.name).is_some()
            || self.evicts_unseen(segment)
    }

    /// Whether an eviction kills a joined segment that was not there, and may have rows of those that go.
    pub(super) fn evicts_unseen(&self, segment: Dated<'_>) -> bool {
        self.evictions.iter().any(|own| own.kills(segment) && self.may_have_gone(segment, own))
    }

    /// Whether an eviction that has begun may kill a segment.
    pub(super) fn doubts(&self, segment: Dated<'_>) -> bool {
        self.evictions.iter().any(|own| own.doubts(segment) && self.may_have_gone(segment, own))
    }

    /// Whether a segment may have been joined from one that goes by an eviction, or was dead before. What dies later says nothing of the segment:
    /// who removes that sees this one, and keeps it.
    fn may_have_gone(&self, segment: Dated<'_>, eviction: &Eviction) -> bool {
        segment.lineage.may_have(|name| eviction.goes(name, &self.dead))
    }

    /// Whether segments are dead by their names. Others may stand for them.
    pub(super) fn names_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ages.is_empty() && self.evictions.is_empty() && self.dead.is_empty()
    }

    /// What all of these say together, without what others of them say as well.
    pub(super) fn together<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let ages = parts.clone().flat_map(|part| part.ages.iter().copied());
        let evictions = parts.clone().flat_map(|part| part.evictions.iter().cloned());
        let dead = parts.flat_map(|part| part.dead.iter().copied());
        let dead = dead_segments::distinct(dead);
        Self { ages: ages::distinct(ages), evictions: evictions::distinct(evictions, &dead), dead }
    }

    /// What the changes with these numbers say of it.
    pub(super) fn of_changes(&self, is_one: impl Fn(u64) -> bool) -> Self {
        let ages = self.ages.iter().filter(|own| is_one(own.number)).copied();
        let evictions = self.evictions.iter().filter(|own| is_one(own.number)).cloned();
        let dead = self.dead.iter().filter(|own| is_one(own.number)).copied();
        Self { ages: ages.collect(), evictions: evictions.collect(), dead: dead.collect() }
    }

    /// The newest change that says any of it; 0 without one.
    pub(super) fn newest(&self) -> u64 {
        let ages = self.ages.iter().map(|own| own.number);
        let of_segments = ages.chain(self.evictions.iter().map(|own| own.number));
        of_segments.chain(self.dead.iter().map(|own| own.number)).max().unwrap_or(0)
    }

    /// The bytes before a table.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = ages::bytes(&self.ages);
        out.extend(evictions::bytes(&self.evictions));
        out.extend(dead_segments::bytes(&self.dead));
        out
    }

    /// Takes it apart from the table behind it; `None` if it is not all there.
    pub(super) fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut cursor = Cursor::new(payload);
        let ages = ages::read(&mut cursor)?;
        let evictions = evictions::read(&mut cursor)?;
        let dead = dead_segments::read(&mut cursor)?;
        Some((Self { ages, evictions, dead }, cursor.rest()))
    }
}
