//! Mapping a sealed file into memory: the only place where the store maps.

use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

use super::aligned_bytes::AlignedBytes;

/// The bytes of a file that never changes again.
///
/// Sealed files are never written again, neither truncated nor extended; they are made read-only (0444)
/// before they get their name, and only ever unlinked, which leaves a mapping as it is. The other half of
/// the contract is the user's: no other program edits the files of a cache directory.
#[derive(Debug)]
pub struct Mapped(Bytes);

#[derive(Debug)]
enum Bytes {
    /// Nothing is mapped for an empty file: the system refuses a mapping of no bytes.
    Nothing,
    /// A map of a file, and which file it is.
    File(Mmap, FileId),
    /// A copy in anonymous memory.
    Copy(Mmap),
    /// A file that is in memory itself, shared and not copied.
    Shared(Arc<AlignedBytes>),
    /// A simulated process maps nothing.
    #[cfg(any(test, feature = "testing"))]
    Simulated(Arc<[u8]>),
}

/// The device of a file and its number there.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(metadata: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn file_id(_: &Metadata) -> FileId {
    (0, 0)
}

impl Mapped {
    /// Maps the whole of `file`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be mapped.
    pub fn new(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            return Ok(Self::nothing());
        }
        #[expect(unsafe_code, reason = "mapping is unsafe: the file could be changed by another program")]
        // SAFETY: the map is only ever read as bytes, each checked before it is used as anything else, and the
        // file is sealed (see the type's documentation): its bytes stay as they are while it is mapped.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Bytes::File(map, file_id(&metadata))))
    }

    /// A copy of these bytes in anonymous memory.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no memory for them.
    pub fn copied(bytes: &[u8]) -> io::Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::nothing());
        }
        let mut map = memmap2::MmapMut::map_anon(bytes.len())?;
        map.copy_from_slice(bytes);
        Ok(Self(Bytes::Copy(map.make_read_only()?)))
    }

    /// The bytes of a file that is kept in memory.
    pub(crate) fn shared(bytes: Arc<AlignedBytes>) -> Self {
        Self(Bytes::Shared(bytes))
    }

    /// No bytes at all.
    pub(crate) fn nothing() -> Self {
        Self(Bytes::Nothing)
    }

    /// What is mapped, if anything is.
    #[cfg(unix)]
    fn map(&self) -> Option<&Mmap> {
        match &self.0 {
            Bytes::File(map, _) | Bytes::Copy(map) => Some(map),
            _ => None,
        }
    }

    /// Whether the bytes are a file's, so that they may be on the disk.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.0, Bytes::File(..))
    }

    /// Whether `file` is the one that is mapped, whatever its name is now. A file that is mapped keeps its number, which no other
    /// file gets as long as the map exists.
    pub(crate) fn is_of(&self, file: &File) -> io::Result<bool> {
        match &self.0 {
            // Other systems do not say it.
            Bytes::File(_, own) if cfg!(unix) => Ok(file_id(&file.metadata()?) == *own),
            _ => Ok(false),
        }
    }

    /// Advises the system that these bytes are needed soon: it reads them while the program goes on.
    pub(crate) fn announce(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = self.map().filter(|map| range.end <= map.len() && !range.is_empty()) {
            // A hint: who does not take it reads the bytes when they are asked for.
            let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Gives back what of the file was read so far: this process does not hold it any more. It stays in the system's memory, and
    /// is there when it is read again. Where the system keeps a file in huge pages, one byte that was looked at holds 2 MiB.
    pub(crate) fn let_go(&self) {
        #[cfg(unix)]
        if let Bytes::File(map, _) = &self.0 {
            #[expect(unsafe_code, reason = "in other maps than this one it would change the bytes")]
            // SAFETY: the map is a shared one of a file and was never written to: what the system takes from it are copies of
            // the file's bytes, which it brings again when they are read, and which stay as they are (see the type's
            // documentation). A concurrent reader notices nothing but the time that it takes.
            let advised = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
            // A hint: who does not take it keeps the pages.
            drop(advised);
        }
    }

    /// Bytes that are in memory already.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn in_memory(bytes: Arc<[u8]>) -> Self {
        Self(Bytes::Simulated(bytes))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::File(map, _) | Bytes::Copy(map) => map,
            Bytes::Shared(bytes) => bytes,
            Bytes::Nothing => &[],
            #[cfg(any(test, feature = "testing"))]
            Bytes::Simulated(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    static BYTES: [u8; 20_000] = [7; 20_000];

    fn mapped() -> Mapped {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&BYTES).unwrap();
        Mapped::new(&file).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn a_map_is_of_the_file_that_was_mapped_and_of_no_other_with_the_same_bytes() {
        let file = || {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&BYTES).unwrap();
            file
        };
        let (own, other) = (file(), file());
        let map = Mapped::new(&own).unwrap();
        assert!(map.is_of(&own.try_clone().unwrap()).unwrap() && !map.is_of(&other).unwrap());
        assert!(!Mapped::copied(&BYTES).unwrap().is_of(&own).unwrap());
    }

    #[test]
    fn what_was_let_go_is_there_when_it_is_read_again() {
        for map in [mapped(), Mapped::copied(&BYTES).unwrap(), Mapped::nothing()] {
            let before = map.to_vec();
            map.let_go();
            assert!(before == *map, "other bytes of {map:?}");
        }
    }

    /// Bytes of the map that this process holds.
    #[cfg(target_os = "linux")]
    fn held(map: &Mapped) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = maps.split_once(&format!("{:x}-", map.as_ptr().addr())).unwrap().1;
        let line = own.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_is_held_of_what_was_let_go() {
        let map = mapped();
        assert!(map.iter().all(|&byte| byte == 7) && held(&map) >= BYTES.len());
        map.let_go();
        assert_eq!(held(&map), 0);
    }
}
