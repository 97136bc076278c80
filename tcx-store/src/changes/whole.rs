//! What changes say of whole segments: they name no key, so that they also hold for segments that come later.

use super::ages::{self, Age};
use super::evictions::{self, Eviction};
use crate::sys::bytes::{Cursor, Random};

/// A segment, as far as these changes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dated {
    /// The newest change that its rows know.
    pub(crate) base: u64,
    /// When its oldest row was computed, in milliseconds since 1970.
    pub(crate) born: u64,
    /// Its own random bits, if it was joined from others.
    pub(crate) joined: Option<Random>,
}

/// What changes say of whole segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) ages: Vec<Age>,
    pub(super) evictions: Vec<Eviction>,
}

impl Whole {
    /// Whether all rows of a segment are dead.
    pub(super) fn kills(&self, segment: Dated) -> bool {
        ages::kill(&self.ages, segment.base, segment.born)
            || self.evictions.iter().any(|own| own.kills(segment))
    }

    /// Whether an eviction that has begun may kill a segment.
    pub(super) fn doubts(&self, segment: Dated) -> bool {
        self.evictions.iter().any(|own| own.doubts(segment))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ages.is_empty() && self.evictions.is_empty()
    }

    /// What all of these say together, without what others of them say as well.
    pub(super) fn together<'a>(parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let ages = parts.clone().flat_map(|part| part.ages.iter().copied());
        let evictions = parts.flat_map(|part| part.evictions.iter().cloned());
        Self { ages: ages::distinct(ages), evictions: evictions::distinct(evictions) }
    }

    /// What the changes with these numbers say of it.
    pub(super) fn of_changes(&self, is_one: impl Fn(u64) -> bool) -> Self {
        let ages = self.ages.iter().filter(|own| is_one(own.number)).copied();
        let evictions = self.evictions.iter().filter(|own| is_one(own.number)).cloned();
        Self { ages: ages.collect(), evictions: evictions.collect() }
    }

    /// The newest change that says any of it; 0 without one.
    pub(super) fn newest(&self) -> u64 {
        let ages = self.ages.iter().map(|own| own.number);
        ages.chain(self.evictions.iter().map(|own| own.number)).max().unwrap_or(0)
    }

    /// The bytes before a table.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = ages::bytes(&self.ages);
        out.extend(evictions::bytes(&self.evictions));
        out
    }

    /// Takes it apart from the table behind it; `None` if it is not all there.
    pub(super) fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let mut cursor = Cursor::new(payload);
        let ages = ages::read(&mut cursor)?;
        let evictions = evictions::read(&mut cursor)?;
        Some((Self { ages, evictions }, cursor.rest()))
    }
}
