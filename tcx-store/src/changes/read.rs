//! Reading the file of one change: its header alone, which identifies it, or all of it.

use std::io;
use std::time::{Duration, Instant};

use super::table::{ChangeBytes, TombstoneTable};
use super::{HEADER, MAGIC, VERSION, is_written_by_another_version, most_bytes};
use crate::storage::name::FileName;
use crate::storage::{FileInfo, LOOK_AGAIN_AFTER, Sealed, Stamp, Storage, may_be_sound};
use crate::sys::bytes::{Cursor, Random, u64_at};
use crate::sys::mmap::Mapped;
use crate::sys::runtime;

/// The longest pause before a damaged change that looks as before is read again. The first is [`LOOK_AGAIN_AFTER`], and each is twice the
/// one before.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// The most that is read of a change of another version: this program does not know where it says its length.
const MOST_BYTES_OF_ANOTHER_VERSION: u64 = 1 << 30;

/// Where the nonce is in a change.
pub(super) const NONCE: usize = 24;

/// Why a change is not known, though its number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The file could not be read, and may be as sound as any. It looked like this, if that could be found out.
    Failed(Option<(u64, Stamp)>),
    /// It is not what was written.
    Damaged(Judged),
}

impl Doubt {
    /// Whether the file is worth another look: damage is checksummed in full each time it is looked for.
    pub(super) fn is_over(&self, storage: &dyn Storage, number: u64) -> bool {
        let Self::Damaged(judged) = self else { return true };
        info(storage, number).map(stamp_of) != judged.stamp || runtime::now() >= judged.again
    }

    /// Since when the file looks damaged; it may be sound soon.
    pub(super) fn since(&self) -> Option<Instant> {
        match self {
            Self::Damaged(judged) if judged.may_end => Some(judged.since),
            _ => None,
        }
    }

    /// Whether the file of this change, which looks different, may be the same one, of which there is more now.
    pub(super) fn has_grown(&self, storage: &dyn Storage, number: u64, found: &FileInfo) -> bool {
        let Self::Damaged(judged) = self else { return false };
        let has_more = || judged.stamp.is_none_or(|(bytes, _)| found.bytes > bytes);
        judged.may_end
            && match judged.nonce {
                Some(known) => nonce_of_any_version(storage, number).ok().flatten() == Some(known),
                None => has_more(),
            }
    }

    /// Whether the file may be sound in a moment.
    pub(super) fn may_end(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Damaged(judged) => judged.may_end,
        }
    }

    /// Whether the file looks as it did when it could not be read, or was found to be damaged. Its inode says nothing: some file
    /// systems invent another one for the same file, and a copy of the folder has other ones.
    pub(super) fn is_of(&self, found: &FileInfo) -> bool {
        let (Self::Failed(seen) | Self::Damaged(Judged { stamp: seen, .. })) = self;
        seen.is_none_or(|(bytes, stamp)| (found.bytes, found.stamp.modified) == (bytes, stamp.modified))
    }

    /// The file is not there any more, so what looked damaged is not completed there. It is looked at again if it comes back.
    pub(super) fn lose_file(&mut self) {
        if let Self::Damaged(judged) = self {
            judged.may_end = false;
        }
    }

    /// This doubt, found again: the pause grows as long as the file looks the same, and it is damaged if it looks so for long enough.
    pub(super) fn after(self, earlier: Self, storage: &dyn Storage, number: u64) -> Self {
        match (self, earlier) {
            // As it looked at first: another file of the same name is not the change that is known.
            (Self::Failed(now), Self::Failed(before)) => Self::Failed(before.or(now)),
            (Self::Damaged(now), Self::Damaged(before)) if now.stamp == before.stamp => {
                Self::Damaged(Judged::new(storage, number, now.stamp, before.since))
            }
            _ => self,
        }
    }
}

/// A file that was found to be damaged, as it looked then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    stamp: Option<(u64, Stamp)>,
    /// When it was first found to look like this.
    since: Instant,
    /// A file system stamps coarsely: a file that looks the same may have been completed since.
    again: Instant,
    /// Whether it may be sound at another look.
    may_end: bool,
    /// The nonce in its header, if that could be read.
    nonce: Option<Random>,
}

impl Judged {
    fn new(storage: &dyn Storage, number: u64, stamp: Option<(u64, Stamp)>, since: Instant) -> Self {
        let nonce = nonce_of_any_version(storage, number).ok().flatten();
        let may_end = may_be_sound_later(storage, number, since);
        let now = runtime::now();
        let pause = now.duration_since(since).clamp(LOOK_AGAIN_AFTER, LONGEST_PAUSE);
        Self { stamp, since, again: now + pause, may_end, nonce }
    }
}

fn info(storage: &dyn Storage, number: u64) -> Option<FileInfo> {
    storage.info(&FileName::Change(number).to_string()).ok()
}

fn stamp_of(found: FileInfo) -> (u64, Stamp) {
    (found.bytes, found.stamp)
}

/// The table of a change; `None` if it is not there (any more).
///
/// # Errors
///
/// Returns the reason why the change cannot be read or verified.
pub(super) fn read(storage: &dyn Storage, number: u64) -> Result<Option<TombstoneTable>, (Doubt, String)> {
    // Before the bytes: what takes the place of the file afterwards has another stamp.
    let found = info(storage, number);
    let damaged =
        |what| (Doubt::Damaged(Judged::new(storage, number, found.map(stamp_of), runtime::now())), what);
    let map = match map(storage, FileName::Change(number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err((Doubt::Failed(found.map(stamp_of)), error.to_string())),
        Ok(map) => map.map_err(damaged)?,
    };
    match TombstoneTable::open(number, ChangeBytes::Mapped(map)) {
        Ok(table) if table.merged_in.is_none() => Ok(Some(table)),
        Ok(_) => Err(damaged("it is merged".to_owned())),
        Err(what) => Err(damaged(what)),
    }
}

/// All bytes of a change or a file of merged changes, or what is wrong with its length.
///
/// The length is compared with the header before anything else is read: a file of nothing but holes takes hours to read, and
/// more memory than there is to copy.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub(crate) fn map(storage: &dyn Storage, name: FileName) -> io::Result<Result<Mapped, String>> {
    let name = name.to_string();
    let file = storage.open(&name)?;
    if let Err(what) = header(&file)?.and_then(|header| check_length(&header, file.bytes())) {
        return Ok(Err(what));
    }
    match file {
        Sealed::Mapped(map) => Ok(Ok(map)),
        Sealed::Read(_) => storage.map(&name).map(Ok),
    }
}

/// Whether the file has the length that its header says.
pub(super) fn check_length(header: &[u8], len: usize) -> Result<(), String> {
    let payload = u64_at(header, HEADER - 8);
    let said = payload.and_then(|payload| payload.checked_add(HEADER as u64 + 8));
    if said != Some(len as u64) {
        return Err("its length differs from its header".to_owned());
    }
    let most = most_bytes();
    if len > most {
        return Err(format!("it has {len} bytes, a change has {most} at most"));
    }
    Ok(())
}

/// The bytes before the payload, or what is wrong with a file that is too short to have any.
fn header(file: &Sealed) -> io::Result<Result<[u8; HEADER], String>> {
    let short = || "it is shorter than any change".to_owned();
    match file {
        Sealed::Mapped(map) => Ok(map.first_chunk().copied().ok_or_else(short)),
        Sealed::Read(file) if file.bytes() < HEADER => Ok(Err(short())),
        Sealed::Read(file) => {
            let mut header = [0; HEADER];
            file.read_at(&mut header, 0).map(|()| Ok(header))
        }
    }
}

/// The nonce of change `number`, by its header alone; `None` if the file does not begin as that change does.
///
/// # Errors
///
/// Returns an error if the file is missing or cannot be read.
pub(super) fn nonce(storage: &dyn Storage, number: u64) -> io::Result<Option<Random>> {
    let file = storage.open(&FileName::Change(number).to_string())?;
    Ok(header(&file)?.ok().and_then(|header| nonce_in(&header, number)))
}

/// As [`nonce`], whatever the version of the change is.
///
/// # Errors
///
/// Returns an error if the file is missing or cannot be read.
fn nonce_of_any_version(storage: &dyn Storage, number: u64) -> io::Result<Option<Random>> {
    let file = storage.open(&FileName::Change(number).to_string())?;
    let header = header(&file)?.ok().filter(|header| header.starts_with(MAGIC));
    Ok(header.and_then(|header| Cursor::new(&header[NONCE..]).random()))
}

/// Whether the change, which this process has known to look damaged `since` then, may be sound at another look.
pub(super) fn may_be_sound_later(storage: &dyn Storage, number: u64, since: Instant) -> bool {
    let name = FileName::Change(number);
    may_be_sound(storage, &name.to_string(), since) && !is_of_another_version(storage, name)
}

/// Whether another version has written the change, or merged changes, of this name: it is complete, and not known here.
pub(crate) fn is_of_another_version(storage: &dyn Storage, name: FileName) -> bool {
    let name = name.to_string();
    let is_short = storage.info(&name).is_ok_and(|found| found.bytes <= MOST_BYTES_OF_ANOTHER_VERSION);
    is_short && storage.map(&name).is_ok_and(|map| is_written_by_another_version(&map))
}

fn nonce_in(header: &[u8; HEADER], number: u64) -> Option<Random> {
    let mut cursor = Cursor::new(header);
    let (magic, version, _kind) = (cursor.take(8)?, cursor.u32()?, cursor.u32()?);
    let is_own = magic == MAGIC && version == VERSION && cursor.u64()? == number;
    is_own.then(|| cursor.random())?
}
