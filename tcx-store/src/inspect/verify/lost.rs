//! What a repair loses: how that is announced, in two changes, before it goes.

use std::collections::BTreeSet;
use std::io;

use super::repair::{Repair, next_after, random};
use crate::changes::{Lost, announcement_of_lost, begin_of_repair};
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::{Inspected, Inspection};
use crate::segment::Segment;
use crate::storage::name::FileName;
use crate::sys::bytes::Random;

/// How often what is lost is announced, and how often the second of its changes is tried, if other processes are faster.
const ANNOUNCED_AT_MOST: usize = 32;

/// What a repair takes out of service.
pub(super) struct Losses<'a> {
    /// The segments that are moved away.
    pub(super) moved: &'a BTreeSet<Random>,
    /// The changes that are repaired.
    pub(super) changes: &'a BTreeSet<u64>,
    /// The rows before this change are dead by a tombstone for everything; 0 without one.
    pub(super) killing: u64,
}

/// What the looks at the folder have shown to be lost. A segment that one has shown may be gone or unreadable at the next, when another that
/// was joined from it is there.
#[derive(Default)]
struct Seen {
    /// The segments whose rows are lost, with what they were joined from.
    names: BTreeSet<Random>,
    /// Those of them that are lost with the changes.
    of_changes: BTreeSet<Random>,
    /// The segments that could not be read, and whose rows may be lost.
    doubtful: BTreeSet<Random>,
}

impl Losses<'_> {
    fn is_lost(&self, segment: &Segment) -> bool {
        let needs = segment.needs();
        needs.base < self.killing || needs.commit.is_some() && self.changes.contains(&needs.base)
    }

    /// The random bits of the names of the segments that are lost with the changes, and of those that they were joined from.
    fn lineage<'a>(&'a self, folder: &'a Inspection) -> impl Iterator<Item = Random> + 'a {
        opened(folder).filter(|segment| self.is_lost(segment)).flat_map(Segment::lineage)
    }

    /// Those of the segments that are moved away, as far as these can be read.
    fn lineage_of_moved(&self, folder: &Inspection) -> BTreeSet<Random> {
        let is_moved = |own: &&Segment| !self.is_lost(own) && self.moved.contains(&own.name().random);
        // If one was joined from segments that are still here, these live again.
        let stays: BTreeSet<Random> = folder.segments().filter_map(|own| random(&own.name)).collect();
        let lineage = opened(folder).filter(is_moved).flat_map(Segment::lineage);
        lineage.filter(|name| !stays.contains(name)).chain(self.moved.iter().copied()).collect()
    }

    fn look(&self, folder: &Inspection, seen: &mut Seen) {
        seen.of_changes.extend(self.lineage(folder));
        seen.names.extend(seen.of_changes.iter().copied());
        seen.names.extend(self.lineage_of_moved(folder));
        if !self.changes.is_empty() {
            seen.doubtful.extend(unread(folder).filter(|name| !self.moved.contains(name)));
        }
    }
}

impl Seen {
    fn is_nothing(&self) -> bool {
        self.names.is_empty() && self.doubtful.is_empty()
    }

    /// What leaves: what this repair loses, or may lose, and what other removals have announced.
    fn leaving(&self, folder: &Inspection) -> Vec<Random> {
        let mut leaving = folder.changes.tombstones().leaving();
        leaving.extend(self.names.iter().chain(&self.doubtful));
        leaving.into_iter().collect()
    }

    /// The segments that are there and stay, whatever they were joined from. Not those that have come since the first look and were joined
    /// from ones that are lost with the changes: by the time of the first change, rows may have been put in the place of these. What one that
    /// cannot be read was joined from is not known.
    fn stay(&self, first: &Inspection, later: &Inspection) -> Vec<Random> {
        let before: BTreeSet<Random> = first.segments().filter_map(|own| random(&own.name)).collect();
        let is_of_lost = |name: Random| self.of_changes.contains(&name) || self.doubtful.contains(&name);
        let is_sound =
            |own: &Inspected| own.segment.as_ref().is_some_and(|own| !own.lineage().any(is_of_lost));
        let named = later.segments.iter().filter_map(|own| Some((random(&own.facts.name)?, own)));
        let stays = named.filter(|(name, own)| before.contains(name) || is_sound(own));
        stays.map(|(name, _)| name).filter(|name| !self.names.contains(name)).collect()
    }
}

impl Repair<'_> {
    /// Creates the new changes, after change `last`, that say what is lost.
    pub(super) fn announce_lost(&self, last: u64, losses: &Losses<'_>) -> Result<()> {
        let killed = (!losses.changes.is_empty()).then_some(losses.killing);
        let (first_look, mut seen) = ((self.look)()?, Seen::default());
        for attempt in 0..ANNOUNCED_AT_MOST {
            let folder = if attempt == 0 { &first_look } else { &(self.look)()? };
            losses.look(folder, &mut seen);
            if losses.killing == 0 && seen.is_nothing() {
                let only = |instance, number| begin_of_repair(instance, number, killed, None);
                return self.create_after(last, only).map(drop);
            }
            let leaving = seen.leaving(folder);
            let first = |_, number| announcement_of_lost(number, losses.killing, &leaving);
            let before = self.create_after(last, first)?;
            if self.kill_lost(losses, &mut seen, &first_look, (before, &leaving))? {
                return Ok(());
            }
        }
        Err(self.overtaken())
    }

    /// Creates the second change, once the first, which has this number, has announced these names. It follows the changes that were known
    /// when the folder was listed for it: after the second change of another removal, what a joined segment stands for may be gone that is
    /// not in that list. Returns `false` if such a removal has ended what the first change says: then all begins again.
    fn kill_lost(
        &self,
        losses: &Losses<'_>,
        seen: &mut Seen,
        first_look: &Inspection,
        (before, announced): (u64, &[Random]),
    ) -> Result<bool> {
        let killed = (!losses.changes.is_empty()).then_some(losses.killing);
        for _ in 0..ANNOUNCED_AT_MOST {
            // Before the look: no change that it does not know has this number.
            let listed = self.listed()?;
            let next = next_after(before, &listed);
            let later = (self.look)()?;
            let expected = later.newest_change() + 1;
            if expected < before && !listed.contains(&expected) {
                // A change is missing, so none is read that comes after it. A process that had read it before may have created others.
                if next > before + 1 {
                    return Ok(false);
                }
            } else if later.changes.is_unread_after(before) {
                let what = io::Error::other("a newer change cannot be read now: verify again");
                return Err(self.failed(&FileName::Change(before).to_string(), what));
            } else if !later.changes.tombstones().announce(before, announced) {
                return Ok(false);
            }
            losses.look(&later, seen);
            let lost = Lost {
                names: seen.names.iter().copied().collect(),
                leaving: seen.leaving(&later),
                before,
                there: seen.stay(first_look, &later),
            };
            let second = |instance, number| begin_of_repair(instance, number, killed, Some(&lost));
            if self.create(next, second)? {
                return Ok(true);
            }
        }
        Err(self.overtaken())
    }

    fn overtaken(&self) -> Error {
        let what = format!(
            "what is damaged in {} is not repaired yet: other processes change the folder again and again; try again later",
            self.storage.path().display()
        );
        Error::of_kind(ErrorKind::Contended, what)
    }
}

fn opened(folder: &Inspection) -> impl Iterator<Item = &Segment> {
    folder.segments.iter().filter_map(|own| own.segment.as_deref())
}

/// The segments that cannot be read, and whose rows may be lost: their random bits.
fn unread(folder: &Inspection) -> impl Iterator<Item = Random> + '_ {
    let hides = folder.segments.iter().filter(|own| own.segment.is_none() && own.facts.state.hides_rows());
    hides.filter_map(|own| random(&own.facts.name))
}
