//! Changes: which copy is that of the object, and what is known of them while the store is away.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::SystemTime;

use tcx_store::unstable::{FileInfo, Mapped, verify_file};

use super::held::remove;
use super::looks::Look;
use super::reach::is_away;
use super::strays::Stray;
use super::{Inner, SHORT, info, info_of};
use crate::bucket::{Created, Object};
use crate::copy::files::{Kind, change, kind, merged};

/// Where a change has its nonce, by which its writer recognises it (`docs/format.md`).
const NONCE: std::ops::Range<usize> = 24..40;

/// Where a change has its kind, and that of those which commit segments.
const KIND: std::ops::Range<usize> = 12..16;
const OF_VIEWS: u32 = 3;

/// A change that is replaced between a look at it and its arrival is looked at so often.
const TRIES: u32 = 3;

/// The most bytes of a tag in the name of a copy, which has a length and a time besides.
const MOST_TAG: usize = 40;

/// A change as it was at the last look.
#[derive(Clone, Debug)]
pub(super) struct KnownChange {
    /// Its copy.
    path: PathBuf,
    bytes: u64,
    modified: SystemTime,
    tag: Option<String>,
    nonce: [u8; 16],
    /// When the store has last said that it is so.
    look: Look,
}

/// What has the number of a change that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Same,
    Other,
    Absent,
}

impl KnownChange {
    /// Whether a listing shows this one. Listings have finer times than other answers.
    fn is(&self, listed: &Object) -> bool {
        let second =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.bytes == listed.bytes
            && self.tag == listed.tag
            && second(self.modified) == second(listed.modified)
    }
}

impl Inner {
    /// The bytes of a change as it is in the store now. While that is away, those of the last look.
    pub(super) fn map_change(&self, name: &str) -> io::Result<Mapped> {
        match self.map_change_there(name) {
            // A copy that is gone says nothing of the object.
            Err(error) if is_away(&error) => match self.known(name)?.map(|known| File::open(known.path)) {
                Some(Ok(copy)) => Mapped::new(&copy),
                _ => Err(error),
            },
            mapped => mapped,
        }
    }

    /// As [`map_change`](Self::map_change), and an error while the store is away.
    pub(super) fn map_change_there(&self, name: &str) -> io::Result<Mapped> {
        if let Some(copy) = self.copy_that_holds(name)? {
            return Mapped::new(&copy);
        }
        let mut tries = 0;
        loop {
            let Some((object, look)) = self.change_object(name)? else {
                self.state(|state| state.changes.remove(name))?;
                return Err(ErrorKind::NotFound.into());
            };
            tries += 1;
            match self.map_object(name, &object, look, tries < TRIES) {
                // Another one has come between the look and the read.
                Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle && tries < TRIES => {
                    self.wrote()?;
                }
                mapped => return mapped,
            }
        }
    }

    /// The bytes of a change that is in the store, which were received before or are received now. A copy must not get the name of another
    /// object; where a store compares tags in another way than it gives them, the last try `is_tagged` no more.
    fn map_object(&self, name: &str, object: &Object, look: Look, is_tagged: bool) -> io::Result<Mapped> {
        let path = self.near.file(&copy_name(name, object));
        let is_known = self.known(name)?.is_some_and(|known| known.path == path);
        if let Ok(file) = File::open(&path) {
            let map = Mapped::new(&file)?;
            if is_known || map.len() as u64 == object.bytes && verify_file(name, &map).is_ok() {
                self.learn(name, object, path, &map, look)?;
                return Ok(map);
            }
            // The copy is damaged, and the object need not be.
            remove(&path)?;
        }
        // A weak tag equals no other.
        let tag = object.tag.as_deref().filter(|tag| is_tagged && !tag.starts_with("W/"));
        let map = self.fetch_to(name, object.bytes, tag, &path)?;
        self.learn(name, object, path, &map, look)?;
        Ok(map)
    }

    pub(super) fn change_info(&self, name: &str) -> io::Result<FileInfo> {
        if let Some(known) = self.known(name)?
            && self.holds(known.look)?
        {
            return Ok(info(known.bytes, known.modified, known.tag.as_deref()));
        }
        match self.change_object(name) {
            Ok(Some((object, _))) => Ok(info_of(&object)),
            Ok(None) => Err(ErrorKind::NotFound.into()),
            Err(error) if is_away(&error) => match self.known(name)? {
                Some(known) => Ok(info(known.bytes, known.modified, known.tag.as_deref())),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// What the store says of a change, or has said in the listing that this thread has made ahead, and when.
    fn change_object(&self, name: &str) -> io::Result<Option<(Object, Look)>> {
        // A listing may be late or incomplete: it says that a change is the same, and nothing else.
        let seen = self.known(name)?.zip(self.seen_ahead(name)?);
        let same = seen.filter(|(known, (listed, _))| known.is(listed));
        let object = if let Some((known, (listed, look))) = same {
            Some((Object { modified: known.modified, ..listed }, look))
        } else {
            let look = self.look()?;
            self.ask(|bucket| bucket.head(&self.key(name)))?.map(|object| (object, look))
        };
        if let (Some((_, look)), true) = (&object, name == change(0)) {
            self.saw_origin(*look)?;
        }
        Ok(object)
    }

    /// The copy of a change that needs no look at the store, because the last one holds.
    ///
    /// If the newest known change is the same, so is change 0: the numbers of another one begin again, and their nonces are random. Only
    /// while a module is removed object by object may its newest change outlive its change 0; forever, if that change was created
    /// at that time. A segment that is sent then names the instance that it is of, so no process takes it for one of another; after a listing
    /// that does not show change 0, and for a change that is created then, change 0 is looked at.
    fn copy_that_holds(&self, name: &str) -> io::Result<Option<File>> {
        let Some(known) = self.known(name)? else { return Ok(None) };
        // A copy that is gone is received again.
        let copy = || File::open(&known.path).ok();
        if self.holds(known.look)? {
            return Ok(copy());
        }
        if name != change(0) || self.needs_origin()? {
            return Ok(None);
        }
        let newest = self.state(|state| {
            let changes = state.changes.iter().rev();
            let mut newer = changes.filter(|(name, _)| matches!(kind(name), Some(Kind::Change(1..))));
            newer.next().map(|(name, known)| (name.clone(), known.path.clone()))
        })?;
        let Some((newest, path)) = newest else { return Ok(None) };
        let is_same = self.map_change_there(&newest).is_ok()
            && self.known(&newest)?.is_some_and(|known| known.path == path);
        Ok(if is_same { copy() } else { None })
    }

    /// Whether a listing shows the change 0 that is known, if one is.
    pub(super) fn is_origin(&self, listed: Option<&Object>) -> io::Result<bool> {
        let Some(known) = self.known(&change(0))? else { return Ok(true) };
        Ok(listed.is_some_and(|listed| known.is(listed)))
    }

    fn known(&self, name: &str) -> io::Result<Option<KnownChange>> {
        self.state(|state| state.changes.get(name).cloned())
    }

    fn learn(&self, name: &str, object: &Object, path: PathBuf, map: &Mapped, look: Look) -> io::Result<()> {
        let Some(nonce) = map.get(NONCE).and_then(|nonce| nonce.try_into().ok()) else { return Ok(()) };
        let Object { bytes, modified, ref tag, .. } = *object;
        let known = KnownChange { path, bytes, modified, tag: tag.clone(), nonce, look };
        self.state(|state| {
            let before = state.changes.insert(name.to_owned(), known);
            if name == change(0) && before.is_some_and(|before| before.nonce != nonce) {
                // The other changes are those of the history before, and must not be taken for its newest.
                state.changes.retain(|known, _| known == name);
            }
        })
    }

    /// The copies of the changes as they are known.
    pub(super) fn copies(&self) -> io::Result<Vec<PathBuf>> {
        self.state(|state| state.changes.values().map(|known| known.path.clone()).collect())
    }

    /// Creates a change, or merged changes; `false` if there is one of this name. What it may commit is sent before.
    ///
    /// `origin` is the history that was known when it was written, if one was.
    pub(super) fn create(&self, name: &str, bytes: &[u8], origin: Option<String>) -> io::Result<bool> {
        if !matches!(kind(name), Some(Kind::Change(_) | Kind::Merged(_))) {
            return Err(ErrorKind::Unsupported.into());
        }
        // Change 0 begins another history. What is created in none that is known could not be taken back.
        let origin = match origin {
            _ if name == change(0) => None,
            Some(origin) => Some(self.origin_before(name, origin)?),
            None => Some(self.origin_before(name, self.origin()?)?),
        };
        // While a removal of a change may still come, none of its number counts.
        self.compare_created()?;
        if commits(bytes) {
            self.settle_own()?;
        }
        self.probe()?;
        let short = self.bucket.deadline().min(SHORT);
        let created = self.send(|bucket| bucket.with_deadline(short).create(&self.key(name), bytes));
        self.created()?;
        let is_own = match created {
            Ok(created) => created == Created::Own,
            Err(error) => {
                if let Some(origin) = origin {
                    // It may be there all the same, or come later.
                    self.take_back_if_created(Stray::doubtful(name, bytes, origin));
                }
                return Err(error);
            }
        };
        if is_own && name == change(0) {
            // What is known is of the history before.
            self.state(|state| state.changes.clear())?;
        }
        if let Some(origin) = origin.filter(|_| is_own) {
            self.take_back_unless_same(Stray::created(name, bytes, origin))?;
        }
        Ok(is_own)
    }

    /// Makes sure, once in a process, that the store creates objects conditionally.
    pub(super) fn probe(&self) -> io::Result<()> {
        if !self.state(|state| state.is_probed)? {
            let short = self.bucket.deadline().min(SHORT);
            self.send(|bucket| bucket.with_deadline(short).check_conditional_puts())?;
            self.state(|state| state.is_probed = true)?;
        }
        Ok(())
    }

    /// The history of the module as this process knows it, as a name: the nonce of change 0, and the number and the nonce of the newest
    /// change. Two modules with the same have the same changes up to that one. The nonce is not known of a change that this process
    /// knows by merged changes only; then its number says as much as it does to the engine.
    pub(super) fn origin(&self) -> io::Result<String> {
        let origin = self.state(|state| {
            let nonce = |known: &KnownChange| format!("{:032x}", u128::from_le_bytes(known.nonce));
            let zero = nonce(state.changes.get(&change(0))?);
            let known = state.changes.iter().filter_map(|(name, known)| match kind(name)? {
                Kind::Change(number) => Some((number, nonce(known))),
                Kind::Merged(number) => Some((number, String::new())),
                Kind::Segment | Kind::Run => None,
            });
            // The nonce of a change says more than that it was merged.
            known.max().map(|(number, newest)| format!("{zero}-{number}-{newest}"))
        })?;
        let gone = "change 0 was not found a moment ago: the module may have been removed";
        origin.ok_or_else(|| io::Error::new(ErrorKind::NotFound, gone))
    }

    /// The part of a history that comes before this change. This process may have received another change of this number, and newer ones, before
    /// it has drafted its own; they say nothing of what it goes by.
    fn origin_before(&self, name: &str, origin: String) -> io::Result<String> {
        let (Some(Kind::Change(number)), Some((zero, newest))) = (kind(name), origin.split_once('-')) else {
            return Ok(origin);
        };
        let newest = newest.split('-').next().and_then(|newest| newest.parse::<u64>().ok());
        if newest.is_none_or(|newest| newest < number) {
            return Ok(origin);
        }
        let before = number.saturating_sub(1);
        let nonce = self.known(&change(before))?.map(|known| u128::from_le_bytes(known.nonce));
        Ok(format!("{zero}-{before}-{}", nonce.map_or_else(String::new, |nonce| format!("{nonce:032x}"))))
    }

    /// Whether the store has the module of this history now.
    ///
    /// # Errors
    ///
    /// Returns an error if that cannot be said.
    pub(super) fn has_origin(&self, origin: &str) -> io::Result<bool> {
        Ok(self.find_origin(origin)? == Found::Same)
    }

    /// As [`has_origin`](Self::has_origin), by a new look.
    pub(super) fn has_origin_now(&self, origin: &str) -> io::Result<bool> {
        self.wrote()?;
        self.has_origin(origin)
    }

    /// What the store has in the place of the newest change of this history.
    pub(super) fn find_origin(&self, origin: &str) -> io::Result<Found> {
        let mut parts = origin.split('-');
        let (Some(zero), Some(number), Some(newest), None) =
            (parts.next(), parts.next().and_then(|number| number.parse().ok()), parts.next(), parts.next())
        else {
            return Ok(Found::Other);
        };
        if number == 0 {
            return self.find_nonce(0, zero);
        }
        if !newest.is_empty() {
            // It says enough of change 0, unless a listing has not shown that: see `copy_that_holds`.
            return match self.find_nonce(number, newest)? {
                Found::Same if self.needs_origin()? => self.find_nonce(0, zero),
                other => Ok(other),
            };
        }
        match (self.find_merged(number)?, self.find_nonce(0, zero)?) {
            (Found::Same, Found::Absent) => Ok(Found::Other),
            (Found::Same, zero) => Ok(zero),
            (other, _) => Ok(other),
        }
    }

    /// Whether there is a change of this number, or else merged changes up to it: they are all there is of it in a part of a copy.
    fn find_merged(&self, number: u64) -> io::Result<Found> {
        let found = self.find_nonce(number, "")?;
        let is_merged = || self.change_object(&merged(number)).map(|object| object.is_some());
        Ok(if found == Found::Absent && is_merged()? { Found::Same } else { found })
    }

    /// Whether there is a change of this number, and whether it has this nonce; any, if that is empty.
    pub(super) fn find_nonce(&self, number: u64, nonce: &str) -> io::Result<Found> {
        match self.map_change_there(&change(number)) {
            Ok(map) => {
                let found = map.get(NONCE).and_then(|found| found.try_into().ok()).map(u128::from_le_bytes);
                let is_same = nonce.is_empty() || found.is_some_and(|found| format!("{found:032x}") == nonce);
                Ok(if is_same { Found::Same } else { Found::Other })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Whether a change may commit segments (`docs/format.md`): a tombstone of views.
fn commits(change: &[u8]) -> bool {
    change.get(KIND).is_none_or(|kind| kind == OF_VIEWS.to_le_bytes())
}

/// The name of the copy of an object: another one for each object that had this name.
fn copy_name(name: &str, object: &Object) -> String {
    let since = object.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut copy = format!("{name}@{}-{}", object.bytes, since.as_millis());
    for byte in object.tag.iter().flat_map(|tag| tag.bytes()).take(MOST_TAG) {
        // Writing to a string cannot fail.
        let _ = write!(copy, "-{byte:02x}");
    }
    copy
}
