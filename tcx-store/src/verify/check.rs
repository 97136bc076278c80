//! Reading every byte of a folder.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Damage, DamagedFile, Verified};
use crate::changes::check_change;
use crate::error::{Error, Result};
use crate::index::Run;
use crate::inspect::{Inspection, SegmentState};
use crate::key::KeyHash;
use crate::live::{Listing, key_hashes};
use crate::name::{FileName, SegmentName};
use crate::segment::Segment;
use crate::storage::Storage;

/// A verification that is going on.
pub(super) struct Check<'a> {
    pub(super) inspection: &'a Inspection,
    pub(super) verified: Verified,
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

    /// Every byte of every segment, and whether text is text.
    pub(super) fn segments(&mut self) -> Result<()> {
        for own in &self.inspection.segments {
            let name = &own.facts.name;
            match (&own.segment, &own.facts.state) {
                (Some(segment), _) => {
                    self.verified.segments += 1;
                    self.verified.rows += own.facts.rows;
                    if let Some(what) = fault(segment) {
                        self.damaged(name, DamagedFile::Segment, what);
                    }
                }
                (None, SegmentState::Foreign(what)) => {
                    self.verified.foreign.push((name.clone(), what.clone()));
                }
                (None, SegmentState::Damaged(what)) => {
                    self.verified.segments += 1;
                    self.damaged(name, DamagedFile::Segment, what);
                }
                (None, SegmentState::Unreadable(why)) => {
                    let error = std::io::Error::other(why.clone());
                    return Err(Error::io("cannot read", self.inspection.storage_path().join(name), error));
                }
                (None, _) => {}
            }
            self.read(own.facts.bytes as usize);
        }
        Ok(())
    }

    /// Every change from 1 to the newest, and the merged ones.
    pub(super) fn changes(&mut self, listing: &Listing) -> Result<()> {
        let newest = listing.changes.changes.last().copied().unwrap_or(0);
        for number in 0..=newest {
            let name = FileName::Change(number);
            let Some(map) = self.map(name)? else {
                self.damaged(&name, DamagedFile::Change, "it is missing, and there are changes behind it");
                continue;
            };
            self.verified.changes += 1;
            self.read(map.len());
            // Change 0 has been read: there would be no inspection without it.
            if let (1.., Err(what)) = (number, check_change(number, map)) {
                self.damaged(&name, DamagedFile::Change, what);
            }
        }
        for &number in &listing.changes.merged {
            let name = FileName::Merged(number);
            let Some(map) = self.map(name)? else { continue };
            self.verified.changes += 1;
            self.read(map.len());
            match check_change(number, map) {
                Ok(Some(instance)) if instance.to_string() != self.inspection.instance() => {
                    let why = "it is of a folder that was here before".to_owned();
                    self.verified.foreign.push((name.to_string(), why));
                }
                Ok(Some(_)) => {}
                Ok(None) => self.damaged(&name, DamagedFile::Merged, "it is a single change"),
                Err(what) => self.damaged(&name, DamagedFile::Merged, what),
            }
        }
        Ok(())
    }

    /// Every byte of every index run, and whether it leads to each row of its segments under the hash of its key.
    pub(super) fn runs(&mut self, listing: &Listing) -> Result<()> {
        let mut hashes = Hashes::new(self.inspection);
        for &random in &listing.runs {
            let name = FileName::Run(random);
            let Some(map) = self.map(name)? else { continue };
            self.verified.runs += 1;
            self.read(map.len());
            if Run::is_of_another_version(&map) {
                let why = "it is of another version of tcx".to_owned();
                self.verified.foreign.push((name.to_string(), why));
                continue;
            }
            let what = match Run::open(map, random) {
                None => Some("it is not what was written".to_owned()),
                Some(run) if !run.is_intact() => Some("a checksum is wrong".to_owned()),
                Some(run) => run.disagreement(|name| hashes.of(name)),
            };
            if let Some(what) = what {
                self.damaged(&name, DamagedFile::Run, what);
            }
        }
        Ok(())
    }

    /// The bytes of a file; `None` if it has vanished.
    fn map(&self, name: FileName) -> Result<Option<crate::mmap::Mapped>> {
        let storage = &self.inspection.storage;
        match storage.map(&name.to_string()) {
            Ok(map) => Ok(Some(map)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("cannot read", storage.path().join(name.to_string()), error)),
        }
    }
}

/// What is wrong with a segment.
fn fault(segment: &Segment) -> Option<String> {
    if segment.is_intact() != Some(true) {
        return Some("a checksum is wrong".to_owned());
    }
    if segment.has_sound_keys() != Some(true) {
        return Some("a key cannot be read".to_owned());
    }
    if segment.is_compressed() {
        let row = segment.first_batch_in_doubt()?;
        return Some(format!("the record batch that begins with row {row} is not what a writer makes"));
    }
    let broken = (0..segment.rows()).find(|&row| !segment.has_intact_leaves(row, None))?;
    Some(format!("row {broken} is none of its outputs' types"))
}

/// The hashes of the keys of each segment, made when they are first asked for.
struct Hashes<'a> {
    segments: HashMap<SegmentName, &'a Arc<Segment>>,
    made: HashMap<SegmentName, Arc<[KeyHash]>>,
}

impl<'a> Hashes<'a> {
    fn new(inspection: &'a Inspection) -> Self {
        let usable = inspection.segments.iter().filter_map(|own| own.segment.as_ref());
        Self { segments: usable.map(|own| (own.name(), own)).collect(), made: HashMap::new() }
    }

    /// `None` for one that is not here or cannot be read.
    fn of(&mut self, name: SegmentName) -> Option<Arc<[KeyHash]>> {
        if let Some(made) = self.made.get(&name) {
            return Some(made.clone());
        }
        let made: Arc<[KeyHash]> = key_hashes(self.segments.get(&name)?)?.into();
        self.made.insert(name, made.clone());
        Some(made)
    }
}
