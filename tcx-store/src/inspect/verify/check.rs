//! Reading every byte of a folder.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;

use super::segments::{Judged, verdicts};
use super::{Damage, DamagedFile, VerifyReport};
use crate::changes::{check_change, is_of_another_version, is_written_by_another_version, map_change};
use crate::index::Run;
use crate::inspect::{Inspected, Inspection, SegmentState};
use crate::live::folder::key_hashes;
use crate::live::listing::Listing;
use crate::schema::key::{KeyHash, KeySeed};
use crate::segment::{Segment, Verdict};
use crate::storage::name::{FileName, SegmentName};
use crate::sys::bytes::Random;
use crate::sys::mmap::Mapped;

/// The most changes that may be missing one after the other, and are repaired.
const WIDEST_GAP: u64 = 100_000;

/// Why a sound file behind a wider gap is left as it is.
const INCOMPLETE: &str =
    "most of the changes before it are missing: the folder is a part of a copy; copy the rest";

/// What is wrong with a sound change of a repair.
const UNFINISHED: &str = "the repair of changes that it is of was interrupted before processes that had read these could notice it: they \
                          may serve rows that count no more";

/// A verification that is going on.
pub(super) struct Check<'a> {
    pub(super) inspection: &'a Inspection,
    pub(super) verified: VerifyReport,
    pub(super) progress: &'a mut dyn FnMut(u64, u64),
    pub(super) total: u64,
}

impl Check<'_> {
    fn read(&mut self, bytes: usize) {
        self.verified.bytes += bytes as u64;
        (self.progress)(self.verified.bytes, self.total);
    }

    fn damaged(&mut self, file: &impl ToString, kind: DamagedFile, what: impl Into<String>) {
        self.verified.damage.push(Damage { file: file.to_string(), kind, what: what.into() });
    }

    /// A file that cannot be read may be as sound as any.
    fn unreadable(&mut self, file: &impl ToString, why: &impl ToString) {
        self.verified.unreadable.push((file.to_string(), why.to_string()));
    }

    /// Every byte of every segment, and whether text is text.
    pub(super) fn segments(&mut self) {
        let inspection = self.inspection;
        let verdicts = verdicts(inspection, |bytes| self.read(bytes));
        for (own, judged) in inspection.segments.iter().zip(verdicts) {
            let name = &own.facts.name;
            if judged.is_unread(own) && self.is_gone(name) {
                continue;
            }
            if let Some(segment) = &own.segment {
                self.verified.segments += 1;
                self.verified.rows += own.facts.rows;
                if !segment.is_mapped() {
                    self.read(segment.bytes());
                }
            } else {
                self.read(own.facts.bytes as usize);
            }
            match judged {
                Judged::Verdict(Verdict::Sound) => {}
                Judged::Verdict(Verdict::Damaged(what)) => self.damaged(name, DamagedFile::Segment, what),
                Judged::Verdict(Verdict::Unread) => self.unreadable(name, &"a read failed"),
                Judged::Unreadable(error) => self.unreadable(name, &error),
                Judged::Not => self.by_its_footer(own),
            }
        }
    }

    /// Whether a segment has vanished since it was looked at: another stands for it, and collection has removed it.
    fn is_gone(&self, name: &str) -> bool {
        self.inspection.storage.info(name).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// A segment that could not be opened.
    fn by_its_footer(&mut self, own: &Inspected) {
        let name = &own.facts.name;
        match &own.facts.state {
            SegmentState::Foreign(what) => self.verified.foreign.push((name.clone(), what.clone())),
            SegmentState::Damaged(what) => {
                self.verified.segments += 1;
                self.damaged(name, DamagedFile::Segment, what);
            }
            SegmentState::Unreadable(why) => self.unreadable(name, why),
            _ => {}
        }
    }

    /// Every change from 1 to the newest that something counts on, and the merged ones.
    pub(super) fn changes(&mut self, listing: &Listing) {
        let (changes, merged) = (&listing.changes.changes, &listing.changes.merged);
        // One that has to be committed has its name before the change.
        let needs = |own: &&Inspected| {
            let needs = own.segment.as_ref()?.needs();
            needs.commit.is_none().then_some(needs.base)
        };
        let inspection = self.inspection;
        let counted = inspection.segments.iter().filter_map(|own| needs(&own));
        let known: BTreeSet<u64> = changes.iter().chain(merged).copied().chain(counted).collect();
        let mut given = 0..0;
        for &number in &known {
            // Each number was given after the one before it. Too many that are missing cannot be repaired one by one.
            if number - given.end.min(number) > WIDEST_GAP {
                break;
            }
            given.end = number.saturating_add(1);
        }
        let unannounced = given.clone().fold(None, |unannounced, number| self.change(number, unannounced));
        if let Some(number) = unannounced {
            self.damaged(&FileName::Change(number), DamagedFile::UnfinishedRepair, UNFINISHED);
        }
        for &number in changes.iter().filter(|number| !given.contains(number)) {
            self.change_behind_a_gap(number);
        }
        let is_behind = |own: &&Inspected| needs(own).is_some_and(|base| !given.contains(&base));
        for own in inspection.segments.iter().filter(is_behind) {
            self.unreadable(&own.facts.name, &INCOMPLETE);
        }
        for &number in merged {
            let name = FileName::Merged(number);
            let map = match self.map(name) {
                File::Read(map) => map,
                File::Gone | File::Unreadable => continue,
                File::WrongLength(what) => {
                    self.damaged(&name, DamagedFile::Merged, what);
                    continue;
                }
            };
            self.verified.changes += 1;
            self.read(map.len());
            match check_change(number, map).map(|sound| sound.merged_in) {
                Ok(Some(instance)) if instance.to_string() != self.inspection.instance() => {
                    let why = "it belongs to an earlier folder of the module".to_owned();
                    self.verified.foreign.push((name.to_string(), why));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.damaged(
                        &name,
                        DamagedFile::Merged,
                        "expected merged changes, found a single change",
                    );
                }
                Err(what) => self.damaged(&name, DamagedFile::Merged, what),
            }
        }
    }

    /// Every byte of a change that was made. `unannounced` is the last one before it that is of a repair, if none before it announces that.
    /// Returns the same for the next one.
    fn change(&mut self, number: u64, unannounced: Option<u64>) -> Option<u64> {
        let name = FileName::Change(number);
        let map = match self.map(name) {
            File::Read(map) => map,
            File::Unreadable => return unannounced,
            File::WrongLength(what) => {
                self.damaged(&name, DamagedFile::Change, what);
                return unannounced;
            }
            File::Gone => {
                let what = "it is missing, and other changes or rows depend on it";
                self.damaged(&name, DamagedFile::Change, what);
                return unannounced;
            }
        };
        self.verified.changes += 1;
        self.read(map.len());
        if is_written_by_another_version(&map) {
            let why = "it is of another version of tcx".to_owned();
            self.verified.foreign.push((name.to_string(), why));
            return unannounced;
        }
        // Change 0 has been read: there would be no inspection without it.
        if number == 0 {
            return unannounced;
        }
        match (check_change(number, map), Random::parse(&self.inspection.instance())) {
            (Ok(sound), Some(instance)) if sound.is_of_repair(instance) => Some(number),
            (Ok(sound), Some(instance)) if sound.says_repairs(instance) => None,
            (Ok(_), _) => unannounced,
            (Err(what), _) => {
                self.damaged(&name, DamagedFile::Change, what);
                unannounced
            }
        }
    }

    /// Unless it is sound, a change so far behind the others was not made by this folder.
    fn change_behind_a_gap(&mut self, number: u64) {
        let name = FileName::Change(number);
        let what = match self.map(name) {
            File::Gone | File::Unreadable => return,
            File::WrongLength(what) => Some(what),
            File::Read(map) if is_written_by_another_version(&map) => None,
            File::Read(map) => check_change(number, map).err(),
        };
        match what {
            Some(_) => {
                let what = "it is no change, and those before it were not made";
                self.damaged(&name, DamagedFile::Stray, what);
            }
            None => self.unreadable(&name, &INCOMPLETE),
        }
    }

    /// Every byte of every index run, and whether it leads to each row of its segments under the hash of its key.
    pub(super) fn runs(&mut self, listing: &Listing) {
        let mut hashes = Hashes::new(self.inspection);
        for &random in &listing.runs {
            let name = FileName::Run(random);
            let File::Read(map) = self.map(name) else { continue };
            self.verified.runs += 1;
            self.read(map.len());
            if Run::is_of_another_version(&map) {
                let why = "it is of another version of tcx".to_owned();
                self.verified.foreign.push((name.to_string(), why));
                continue;
            }
            let what = match Run::open(map, random) {
                None => Some("it is damaged".to_owned()),
                Some(run) if !run.is_intact() => Some("a checksum is wrong".to_owned()),
                Some(run) => run.disagreement(|name| hashes.of(name, run.seed())),
            };
            if let Some(what) = what {
                self.damaged(&name, DamagedFile::Run, what);
            }
        }
    }

    fn map(&mut self, name: FileName) -> File {
        let storage = &self.inspection.storage;
        // First: a file of holes may have more bytes than can be read.
        if matches!(name, FileName::Change(_) | FileName::Merged(_))
            && let Ok(Err(what)) = map_change(&**storage, name)
            && !is_of_another_version(&**storage, name)
        {
            return File::WrongLength(what);
        }
        let name = name.to_string();
        match storage.read_through(&name, 0..usize::MAX).and_then(|()| storage.map(&name)) {
            Ok(map) => File::Read(map),
            Err(error) if error.kind() == ErrorKind::NotFound => File::Gone,
            Err(error) => {
                self.unreadable(&name, &error);
                File::Unreadable
            }
        }
    }
}

/// A file that is wanted whole.
enum File {
    Read(Mapped),
    /// It has vanished, or never came.
    Gone,
    /// It has been reported.
    Unreadable,
    /// Its length is not the one that its header says.
    WrongLength(String),
}

/// The hashes of the keys of each segment, made when they are first asked for.
struct Hashes<'a> {
    segments: HashMap<SegmentName, &'a Arc<Segment>>,
    made: HashMap<(SegmentName, KeySeed), Arc<[KeyHash]>>,
}

impl<'a> Hashes<'a> {
    fn new(inspection: &'a Inspection) -> Self {
        let usable = inspection.segments.iter().filter_map(|own| own.segment.as_ref());
        Self { segments: usable.map(|own| (own.name(), own)).collect(), made: HashMap::new() }
    }

    /// `None` for one that is not here or cannot be read.
    fn of(&mut self, name: SegmentName, seed: KeySeed) -> Option<Arc<[KeyHash]>> {
        if let Some(made) = self.made.get(&(name, seed)) {
            return Some(made.clone());
        }
        let made: Arc<[KeyHash]> = key_hashes(self.segments.get(&name)?, seed)?.into();
        self.made.insert((name, seed), made.clone());
        Some(made)
    }
}
