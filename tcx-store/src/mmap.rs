//! Mapping a sealed file into memory: the only place where the store maps.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};

use memmap2::Mmap;

/// The bytes of a file that nobody changes any more.
///
/// Sealed files are never written again, neither truncated nor extended; they are made read-only (0444)
/// before they get their name, and only ever unlinked, which leaves a mapping as it is. The other half of
/// the contract is the user's: no other program edits the files of a cache directory.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// Nothing is mapped for an empty file: the system refuses a mapping of no bytes.
    map: Option<Mmap>,
    /// A simulated process maps nothing.
    #[cfg(test)]
    memory: Option<std::sync::Arc<[u8]>>,
}

impl Mapped {
    /// Maps the whole of `file`.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::nothing());
        }
        #[expect(unsafe_code, reason = "mapping is unsafe: the file could be changed by another program")]
        // SAFETY: the map is only ever read as bytes, each checked before it is used as anything else, and the
        // file is sealed (see the type's documentation): its bytes stay as they are while it is mapped.
        let map = unsafe { Mmap::map(file)? };
        Ok(Self {
            map: Some(map),
            #[cfg(test)]
            memory: None,
        })
    }

    /// A copy of these bytes in memory that no file stands behind.
    pub(crate) fn copied(bytes: &[u8]) -> io::Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::nothing());
        }
        let mut map = memmap2::MmapMut::map_anon(bytes.len())?;
        map.copy_from_slice(bytes);
        let mut copied = Self::nothing();
        copied.map = Some(map.make_read_only()?);
        Ok(copied)
    }

    /// No bytes at all.
    pub(crate) fn nothing() -> Self {
        Self {
            map: None,
            #[cfg(test)]
            memory: None,
        }
    }

    /// Tells the system that these bytes are wanted soon: it reads them while the program goes on.
    pub(crate) fn announce(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = self.map.as_ref().filter(|map| range.end <= map.len() && !range.is_empty()) {
            // A hint: who does not take it reads the bytes when they are asked for.
            let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Bytes that are in memory already.
    #[cfg(test)]
    pub(crate) fn in_memory(bytes: std::sync::Arc<[u8]>) -> Self {
        Self { map: None, memory: Some(bytes) }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        #[cfg(test)]
        if let Some(bytes) = &self.memory {
            return bytes;
        }
        self.map.as_deref().unwrap_or_default()
    }
}
