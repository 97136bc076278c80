//! What the engine asks of a folder.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tcx_store::Traffic;
use tcx_store::unstable::{Draft, FileInfo, Held, Mapped, Parts, Sealed, Stamp, Storage, directory};

use super::draft::RemoteDraft;
use super::held::{RemoteHeld, remove};
use super::shared::SharedFolder;
use super::{RemoteFolder, info};
use crate::client::requests::Requests;
use crate::copy::files::{Kind, kind};

impl Storage for RemoteFolder {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    /// Always the same: a store has no time of its last change, and a listing a second costs money. So the engine lists when its time
    /// for that has come, when a caller wants it, or when a segment could not be found that was read in the store.
    fn stamp(&self) -> io::Result<Option<Stamp>> {
        let inode = self.0.vanished.load(Ordering::Relaxed);
        Ok(Some(Stamp { modified: SystemTime::UNIX_EPOCH, inode }))
    }

    fn map(&self, name: &str) -> io::Result<Mapped> {
        match kind(name) {
            Some(Kind::Change(_) | Kind::Merged(_)) => self.0.map_change(name),
            Some(Kind::Segment) => self.0.map_segment(name),
            Some(Kind::Run) | None => Mapped::new(&File::open(self.0.near.file(name))?),
        }
    }

    fn open(&self, name: &str) -> io::Result<Sealed> {
        match kind(name) {
            Some(Kind::Segment) => self.0.open_segment(name),
            _ => self.map(name).map(Sealed::Mapped),
        }
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        match kind(name) {
            Some(Kind::Segment) => self.0.is_segment_there(name),
            _ => match self.info(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                found => found.map(|_| true),
            },
        }
    }

    fn is_here(&self, name: &str) -> Option<bool> {
        (kind(name) == Some(Kind::Segment)).then(|| self.0.is_here(name))
    }

    /// As the folder with the copies says, which all processes of the machine share.
    fn moves(&self) -> Option<Stamp> {
        Some(Stamp { modified: self.0.near.changed()?, inode: 0 })
    }

    fn read_parts(&self, wanted: &[Parts]) -> Vec<Vec<io::Result<Vec<u8>>>> {
        // If that fails, what comes does not matter: the rows are read in the store.
        let _ = self.0.wait_for_arrivals(wanted.iter().map(|parts| parts.name.as_str()));
        self.0.read_parts(wanted)
    }

    fn make(&self) -> io::Result<()> {
        self.0.near.make()
    }

    fn draft(&self) -> io::Result<Box<dyn Draft>> {
        Ok(Box::new(RemoteDraft::new(self.0.clone())?))
    }

    fn create_if_absent(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.0.create(name, bytes, None)
    }

    /// What a store has acknowledged is durable, in the module that it has then.
    fn sync(&self) -> io::Result<()> {
        self.0.compare_created()
    }

    fn info(&self, name: &str) -> io::Result<FileInfo> {
        match kind(name) {
            Some(Kind::Change(_) | Kind::Merged(_)) => self.0.change_info(name),
            Some(Kind::Segment) => {
                let listed = self.0.state(|state| state.listed.get(name).copied())?;
                if let Some((bytes, modified)) = listed {
                    return Ok(info(bytes, modified, None));
                }
                if let Some(waiting) = self.0.near.find_spooled(name) {
                    let metadata = std::fs::metadata(waiting)?;
                    return Ok(info(metadata.len(), metadata.modified()?, None));
                }
                self.hold()?.info(name)
            }
            Some(Kind::Run) | None => self.0.local_info(name),
        }
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name, None)
    }

    fn hold(&self) -> io::Result<Box<dyn Held>> {
        Ok(Box::new(RemoteHeld { folder: self.0.clone(), origin: self.0.origin().ok() }))
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        if let Some(shared) = SharedFolder::new(&self.0, name) {
            return Ok(Box::new(shared));
        }
        self.0.near.make()?;
        directory(self.0.near.dir().to_owned()).folder(name)
    }

    fn existing_folder(&self, name: &str) -> io::Result<Box<dyn Storage>> {
        if let Some(shared) = SharedFolder::new(&self.0, name) {
            return Ok(Box::new(shared));
        }
        directory(self.0.near.dir().to_owned()).existing_folder(name)
    }

    fn map_unnamed(&self, bytes: &[u8]) -> io::Result<Mapped> {
        directory(self.0.near.dir().to_owned()).map_unnamed(bytes)
    }

    fn is_away(&self) -> bool {
        self.0.reach.is_away()
    }

    fn try_now(&self) {
        self.0.reach.try_now();
    }

    fn settle(&self) -> io::Result<()> {
        self.0.settle_and_report()
    }

    fn list_every(&self) -> Option<Duration> {
        Some(self.0.list_every())
    }

    fn look_ahead(&self) {
        self.0.look_ahead();
    }

    fn distrust(&self, name: &str) {
        if kind(name) == Some(Kind::Segment) {
            // Received again when it is opened again.
            let _ = remove(&self.0.near.file(name));
            self.0.budget.changed();
            self.0.note_distrusted(name);
        }
    }

    fn traffic(&self) -> Traffic {
        let Requests { puts, lists, gets, heads, deletes, sent, received } = self.0.bucket.requests();
        let waiting = self.0.near.spooled().unwrap_or_default();
        Traffic {
            puts,
            lists,
            gets,
            heads,
            deletes,
            bytes_sent: sent,
            bytes_received: received,
            ranged_gets: self.0.far_reads.load(Ordering::Relaxed),
            ranged_bytes: self.0.far_bytes.load(Ordering::Relaxed),
            waiting_files: waiting.len() as u64,
            waiting_bytes: waiting.iter().map(|own| own.bytes).sum(),
        }
    }
}
