//! Which segments to join: some of about the same size, so that every row is copied a logarithmic number of times, and
//! those that are half dead.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::segment::Segment;

/// The number of segments of one size class that are joined.
const FAN_IN: usize = 4;
/// The largest number at a time: each is mapped and read at once.
const MOST_AT_ONCE: usize = 64;
/// Bytes of the smallest class; the classes are powers of [`FAN_IN`] of it.
const SMALLEST: usize = 64 << 10;
/// Joining no more than this is done at once, even if a caller waits: a tenth of a second's work or so.
const SMALL: usize = 16 << 20;

/// How much is worth doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// What takes no time.
    Small,
    /// What keeps the number of files logarithmic and dead rows below half.
    Steady,
    /// Whatever makes the folder smaller.
    Thorough,
}

/// A served segment and how many of its rows are dead.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) segment: Arc<Segment>,
    pub(super) dead: usize,
}

impl Candidate {
    /// Not compressed, as the result may be.
    fn bytes(&self) -> usize {
        self.segment.unpacked_bytes()
    }

    fn class(&self) -> u32 {
        (self.bytes() / SMALLEST).max(1).ilog(FAN_IN)
    }

    fn is_half_dead(&self) -> bool {
        2 * self.dead >= self.segment.rows()
    }
}

/// The largest segment that others are joined to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The segments to join next: their rows have to fit in one.
pub(super) fn choose(candidates: &[Candidate], effort: Effort, largest: Largest) -> Option<Vec<Candidate>> {
    let mut sorted = candidates.to_vec();
    sorted.sort_by_key(|candidate| (candidate.bytes(), candidate.segment.name()));
    if effort == Effort::Thorough {
        return thorough(&sorted, largest);
    }
    if effort == Effort::Steady
        && let Some(half_dead) = sorted.iter().find(|candidate| candidate.is_half_dead())
    {
        return Some(vec![half_dead.clone()]);
    }
    let mut classes: BTreeMap<u32, Vec<Candidate>> = BTreeMap::new();
    for candidate in sorted {
        classes.entry(candidate.class()).or_default().push(candidate);
    }
    classes.into_values().find_map(|class| {
        let enough = class.len() >= FAN_IN;
        let chosen = fitting(&class, largest);
        let bytes = chosen.iter().map(Candidate::bytes).sum::<usize>();
        // Segments near the largest size are joined once, to the largest size.
        let due = match class.first()?.bytes() {
            large if large >= largest.bytes / 16 => {
                bytes >= largest.bytes / 4 * 3 || chosen.len() >= 2 * FAN_IN
            }
            _ => enough,
        };
        let small = effort != Effort::Small || bytes <= SMALL;
        (due && small && chosen.len() > 1).then_some(chosen)
    })
}

/// Two that fit in one, or one with dead rows.
fn thorough(sorted: &[Candidate], largest: Largest) -> Option<Vec<Candidate>> {
    let chosen = fitting(sorted, largest);
    if chosen.len() > 1 {
        return Some(chosen);
    }
    sorted.iter().find(|candidate| candidate.dead > 0).map(|candidate| vec![candidate.clone()])
}

/// As many from the smallest on as fit in one segment.
fn fitting(sorted: &[Candidate], largest: Largest) -> Vec<Candidate> {
    let (mut bytes, mut rows) = (0, 0);
    let fits = |candidate: &&Candidate| {
        bytes += candidate.bytes();
        rows += candidate.segment.rows();
        bytes <= largest.bytes && rows <= largest.rows
    };
    sorted.iter().take(MOST_AT_ONCE).take_while(fits).cloned().collect()
}
