//! What users and other programs do to the folder.

use super::Simulation;
use crate::storage::name::FileName;
use crate::sys::checksum::checksum;
use crate::testing::simulation::chance::Chance;
use crate::testing::simulation::committed::segment;
use crate::testing::simulation::history::Matcher;
use crate::testing::simulation::places::Places;

/// A change as a version to come may write it: it counts as a tombstone for everything before it.
fn of_a_version_to_come() -> Vec<u8> {
    let start = b"TCXCHG99 as it is.";
    [start.as_slice(), &checksum(start).to_le_bytes()].concat()
}

impl Simulation {
    /// A user removes the folder under living processes.
    pub(in super::super) fn remove_folder(&self) {
        self.world.note(|| "the folder is removed".to_owned());
        self.world.folder.remove_all();
        self.world.oracle().switch(|places, now| places.leave(now, false));
    }

    /// The folder goes away under living processes, and may come back: that of a mount that is lost for a while.
    pub(in super::super) fn take_folder_away(&self) {
        if self.world.folder.take_away() {
            self.world.note(|| "the folder goes away".to_owned());
            self.world.oracle().switch(|places, now| places.leave(now, true));
        }
    }

    /// It comes back, in the place of what was made there.
    pub(in super::super) fn bring_folder_back(&self) {
        if self.world.folder.bring_back() {
            self.world.note(|| "the folder comes back".to_owned());
            self.world.oracle().switch(Places::come_back);
        }
    }

    /// A user copies the folder.
    pub(in super::super) fn back_up_folder(&self) {
        if self.world.folder.back_up() {
            self.world.note(|| "the folder is copied".to_owned());
            let mut oracle = self.world.oracle();
            let now = oracle.now();
            oracle.backed_up(now);
        }
    }

    /// A user puts the copy in the place of the folder, under living processes.
    pub(in super::super) fn restore_folder(&self) {
        if self.world.folder.restore() {
            self.world.note(|| "the copy of the folder comes in its place".to_owned());
            self.world.oracle().switch(Places::restore);
        }
    }

    /// The disk gives other bytes of a file from now on. Processes that have mapped it keep what they have. Without change 0 there is no module: it
    /// is not damaged. Nor is a damaged file: a process that knows its damage takes it for another file then.
    pub(in super::super) fn damage(&self, chance: &mut Chance) {
        let kind = chance.pick(&["seg-", "seg-", "change-", "change-", "run-", "merged-"]);
        let mut names = self.world.folder.names(kind);
        let zero = FileName::Change(0).to_string();
        names.retain(|name| *name != zero && !self.world.folder.state().is_damaged(name));
        if names.is_empty() {
            return;
        }
        let name = names.swap_remove(chance.below(names.len()));
        let written = self.world.folder.damage(&name, |bytes| match chance.below(3) {
            0 => bytes.truncate(bytes.len() / 2),
            1 => bytes.fill(0),
            _ => {
                let at = chance.below(bytes.len().max(1));
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
            }
        });
        // The end of a segment's name is not decided by the seed.
        self.world.note(|| format!("{} is damaged", &name[..name.len().min(36)]));
        if kind == "change-" {
            self.world.oracle().damaged_change(&name);
        } else if let Some(segment) = written.filter(|_| kind == "seg-").and_then(|bytes| segment(&bytes)) {
            self.world.oracle().damaged_segment(&segment);
        }
    }

    /// A program of a version to come invalidates everything.
    pub(in super::super) fn invalidate_all(&self) {
        let Some(number) = self.next_change() else { return };
        self.world.note(|| format!("change {number} of a version to come"));
        let mut oracle = self.world.oracle();
        let invalidation = oracle.invalidate(None, Matcher::All);
        self.world.folder.put(&FileName::Change(number).to_string(), &of_a_version_to_come());
        oracle.invalidated(invalidation);
    }

    /// The number of the change to come; `None` while there is no change 0, and while a change is missing that was not merged: nothing
    /// is invalidated in an incomplete copy.
    fn next_change(&self) -> Option<u64> {
        let numbers = |prefix| {
            let names = self.world.folder.names(prefix).into_iter();
            names.filter_map(move |name| name.strip_prefix(prefix)?.parse::<u64>().ok())
        };
        let changes: Vec<u64> = numbers("change-").collect();
        let merged = numbers("merged-").max();
        let next = changes.iter().copied().chain(merged).max()? + 1;
        let is_whole = (merged.map_or(0, |merged| merged + 1)..next).all(|number| changes.contains(&number));
        (is_whole && changes.contains(&0)).then_some(next)
    }
}
