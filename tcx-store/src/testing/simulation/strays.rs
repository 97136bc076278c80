//! What has strayed: a change, merged changes or a segment that came to the store where a change is missing on which it counts. An older copy had just come in
//! the place of the module, or it was removed.
//!
//! The process that has sent it takes it back, and as long as that process has the store open, nothing excuses it. `docs/design.md` names two
//! limits: a process that ends before leaves it, and a copy of the module that was made in between contains it. No process can write where it
//! is. The user has to remove it, and so does the simulation before it judges.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::committed::segment;
use super::folder::{File, State};
use super::operation::Operation;
use super::run::Simulation;
use crate::storage::name::FileName;

/// So often a process that lives is given the time to take back what it has sent: requests fail.
const TRIES: usize = 8;

/// What lives as long as a process has the store open.
pub(super) type Life = Arc<()>;

#[derive(Debug)]
struct Stray {
    name: String,
    bytes: Arc<[u8]>,
    /// The process that has sent it.
    process: usize,
    /// Of that process.
    life: Weak<()>,
    /// Only a child of that process goes on, which takes nothing back.
    is_left: bool,
    /// It can be there again in a copy only.
    is_taken_back: bool,
}

/// All that have strayed so far.
#[derive(Debug, Default)]
pub(super) struct Strays(Mutex<Vec<Stray>>);

impl Strays {
    /// A process sends this to the folder.
    pub(super) fn note(&self, folder: &State, name: &str, bytes: &[u8], process: usize, life: &Life) {
        if is_astray(folder, name, bytes) {
            let (name, bytes, life) = (name.to_owned(), bytes.into(), Arc::downgrade(life));
            self.all().push(Stray { name, bytes, process, life, is_left: false, is_taken_back: false });
        }
    }

    /// A process has forked, and has ended.
    pub(super) fn note_fork(&self, process: usize) {
        self.all().iter_mut().filter(|own| own.process == process).for_each(|own| own.is_left = true);
    }

    /// A process has removed this from the folder.
    pub(super) fn note_removal(&self, name: &str) {
        self.all().iter_mut().filter(|own| own.name == name).for_each(|own| own.is_taken_back = true);
    }

    /// Those that are in the folder, and whether that is to be expected.
    fn left(&self, folder: &State) -> Vec<(String, bool)> {
        let is_there = |own: &&Stray| {
            folder.files.get(&own.name).is_some_and(|file| file.bytes == own.bytes)
                && is_astray(folder, &own.name, &own.bytes)
        };
        let strays = self.all();
        let left = strays.iter().filter(is_there);
        let is_expected = |own: &Stray| own.is_taken_back || own.is_left || own.life.strong_count() == 0;
        left.map(|own| (own.name.clone(), is_expected(own))).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Stray>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the change is missing on which this counts.
fn is_astray(folder: &State, name: &str, bytes: &[u8]) -> bool {
    let counts_on = match FileName::parse(name) {
        Some(FileName::Merged(number)) => {
            // They count on the changes that they merge, unless another process has gone by them.
            return !has(folder, number) && !is_known_by_others(folder, number);
        }
        Some(FileName::Change(number)) => number.checked_sub(1),
        Some(FileName::Segment(_)) => base(bytes),
        _ => None,
    };
    let is_merged = |number: u64| {
        let is_in =
            |name: &String| matches!(FileName::parse(name), Some(FileName::Merged(own)) if own >= number);
        folder.files.keys().any(is_in)
    };
    counts_on.is_some_and(|number| !has(folder, number) && !is_merged(number))
}

fn has(folder: &State, change: u64) -> bool {
    folder.files.contains_key(&FileName::Change(change).to_string())
}

/// Whether there is a change after this one, or a segment that counts on it.
fn is_known_by_others(folder: &State, change: u64) -> bool {
    let counts_on_it = |(name, file): (&String, &File)| {
        matches!(FileName::parse(name), Some(FileName::Segment(_))) && base(&file.bytes) >= Some(change)
    };
    has(folder, change.saturating_add(1)) || folder.files.iter().any(counts_on_it)
}

/// The change on which a segment counts. Where change 0 is missing, no process takes a segment for one of another module: it names its own.
fn base(bytes: &[u8]) -> Option<u64> {
    segment(bytes).and_then(|own| own.counts_on()).filter(|base| *base > 0)
}

impl Simulation {
    /// Processes that live take back what they have sent; what is left otherwise is removed by the user. The last one first: the one before it
    /// may have strayed as well.
    pub(super) fn remove_strays(&mut self) {
        let left = |own: &Self| own.world.strays.left(&own.world.folder.state());
        for _ in 0..TRIES {
            if left(self).iter().all(|(_, is_expected)| *is_expected) {
                break;
            }
            for process in 0..self.processes() {
                if self.process(process).session().is_some() {
                    self.run(process, Operation::Refresh { fresh: true });
                }
            }
        }
        for (name, _) in left(self).into_iter().rev().filter(|(_, is_expected)| *is_expected) {
            self.world.note(|| format!("{name} has strayed, and is removed by the user"));
            self.world.folder.remove_file(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: &str = "change-00000000000000000002";

    /// A folder that lacks change 1, and has what has strayed there.
    fn folder() -> State {
        let mut folder = State::default();
        let file = File { bytes: (*b"bytes").into(), synced: true, named: true, written: 0 };
        folder.files.insert(CHANGE.to_owned(), file);
        folder
    }

    #[test]
    fn what_strays_is_excused_once_its_process_has_ended_or_has_taken_it_back() {
        let (folder, strays, life) = (folder(), Strays::default(), Life::default());
        strays.note(&folder, CHANGE, b"bytes", 0, &life);
        assert_eq!(strays.left(&folder), [(CHANGE.to_owned(), false)], "its process has to take it back");
        drop(life);
        assert_eq!(strays.left(&folder), [(CHANGE.to_owned(), true)]);

        let (strays, life) = (Strays::default(), Life::default());
        strays.note(&folder, CHANGE, b"bytes", 0, &life);
        strays.note_removal(CHANGE);
        assert_eq!(strays.left(&folder), [(CHANGE.to_owned(), true)], "it came with a copy");

        let (strays, life) = (Strays::default(), Life::default());
        strays.note(&folder, CHANGE, b"bytes", 0, &life);
        strays.note_fork(1);
        assert_eq!(strays.left(&folder), [(CHANGE.to_owned(), false)], "another process has forked");
        strays.note_fork(0);
        assert_eq!(strays.left(&folder), [(CHANGE.to_owned(), true)], "its child takes nothing back");
    }

    #[test]
    fn merged_changes_stray_where_the_last_of_them_is_missing() {
        let (mut folder, strays, life) = (folder(), Strays::default(), Life::default());
        let merged = |number: u64| FileName::Merged(number).to_string();
        let file = folder.files[CHANGE].clone();
        for number in [2, 3] {
            folder.files.insert(merged(number), file.clone());
            strays.note(&folder, &merged(number), b"bytes", 0, &life);
        }
        drop(life);
        assert_eq!(strays.left(&folder), [(merged(3), true)], "change 2 is there");
        strays.note(&folder, CHANGE, b"bytes", 0, &Life::default());
        assert_eq!(strays.left(&folder), [(merged(3), true)], "change 1 is merged");
        folder.files.insert(FileName::Change(4).to_string(), file);
        assert_eq!(strays.left(&folder), [], "another process has gone by them");
    }

    #[test]
    fn a_change_of_another_process_or_one_that_others_lead_to_has_not_strayed() {
        let (mut folder, strays, life) = (folder(), Strays::default(), Life::default());
        strays.note(&folder, CHANGE, b"other", 0, &life);
        assert_eq!(strays.left(&folder), [], "another process has created the one that is there");
        strays.note(&folder, CHANGE, b"bytes", 0, &life);
        let before = folder.files[CHANGE].clone();
        folder.files.insert("change-00000000000000000001".to_owned(), before);
        assert_eq!(strays.left(&folder), []);
    }
}
