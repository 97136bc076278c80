//! Ids of files whose contents change: the path, stamped with what the file is like.

use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::ids::content::ContentId;
use crate::ids::paths::text;
use crate::ids::stamp::{Stamped, StampedId};
use crate::ids::{KeyKind, StringIds};
use crate::{Error, ErrorKind, Result};

/// The id of a file whose contents may change: its path, with a [stamp](crate::Stamped) that another content changes.
///
/// It is an id wherever ids are strings with stamps of bytes: `#[cached_module(stamp = bytes)]`, or
/// [`TableBuilder::stamped::<[u8]>()`](crate::TableBuilder::stamped). A row that was computed from another content is a miss, and
/// the new row replaces it.
///
/// ```
/// use tcx::FileId;
///
/// # let dir = tempfile::tempdir()?;
/// # let cache = tcx::Cache::open(dir.path().join("cache"))?;
/// let file = dir.path().join("a.txt");
/// let lengths = tcx::Table::<Vec<i64>>::builder("file_lengths_v1").stamped::<[u8]>().open(&cache)?;
/// for text in ["a cat", "a black cat"] {
///     std::fs::write(&file, text)?;
///     let found = lengths.get_or_compute(&[FileId::of(&file)?], |missing| {
///         missing.ids().map(|id| Ok(std::fs::read_to_string(id)?.len() as i64)).collect()
///     })?;
///     assert_eq!(found, [text.len() as i64]); // not the row of the earlier content
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | | reads | does not notice |
/// |---|---|---|
/// | [`FileId::of`] | size and modification time | a content of the same size under the same time: two writes within the resolution of the file system's clock, or a tool that sets the time back (`cp -p`, `rsync -t`, `tar`) |
/// | [`FileId::of_content`] | the whole file | nothing |
///
/// The stamps of the two differ, so a program that changes from one to the other computes every row again. A file that changes
/// between the stamp and the loader is computed from the new content under the old stamp. [`FileId::of`] then gives another stamp
/// the next time, and the row is a miss. With [`FileId::of_content`] such a row is served again if the file gets its old content
/// back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    path: Box<str>,
    stamp: Box<[u8]>,
}

impl FileId {
    /// By size and modification time: nothing of the file is read.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is not UTF-8, if the file does not exist, or if its file system has no modification times.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let looked_at = || {
            let metadata = std::fs::metadata(path)?;
            Ok((metadata.len(), metadata.modified()?))
        };
        let (len, modified) = looked_at().map_err(|error: std::io::Error| {
            let message = format!("cannot read the size and the modification time of `{}`", path.display());
            Error::new(ErrorKind::Io, message).with_source(error)
        })?;
        // Before 1970, the sign is in the first byte.
        let (sign, since) = match modified.duration_since(UNIX_EPOCH) {
            Ok(since) => (0, since),
            Err(before) => (1, before.duration()),
        };
        let mut stamp = vec![sign];
        stamp.extend_from_slice(&since.as_secs().to_le_bytes());
        stamp.extend_from_slice(&since.subsec_nanos().to_le_bytes());
        stamp.extend_from_slice(&len.to_le_bytes());
        Self::new(path, stamp)
    }

    /// By content: the BLAKE3 hash of its bytes. Reads the whole file, which often costs less than decoding it.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is not UTF-8 or the file cannot be read.
    pub fn of_content(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::new(path, ContentId::of_file(path)?.as_bytes().to_vec())
    }

    fn new(path: &Path, stamp: Vec<u8>) -> Result<Self> {
        Ok(Self { path: text(path)?.into(), stamp: stamp.into() })
    }

    /// The path, as it was given. [`invalidate`](crate::Cached::invalidate) takes it: it asks for ids without stamps.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The stamp: 21 bytes of size and time, or 32 of content.
    pub fn stamp(&self) -> &[u8] {
        &self.stamp
    }
}

impl AsRef<Path> for FileId {
    fn as_ref(&self) -> &Path {
        Path::new(&*self.path)
    }
}

impl StampedId<FileId> for Stamped<StringIds, [u8]> {
    fn read(id: &FileId) -> <Self as KeyKind>::Ref<'_> {
        (&id.path, &id.stamp)
    }

    fn check(_: &FileId) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, write};
    use std::time::{Duration, SystemTime};

    use super::*;

    fn set_time(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn another_size_or_time_is_another_stamp_and_the_same_ones_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let at = |content: &str, time| {
            write(&path, content).unwrap();
            set_time(&path, time);
            FileId::of(&path).unwrap()
        };
        let time = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let first = at("cat", time);
        assert_eq!(first, at("cat", time));
        let earlier = UNIX_EPOCH - Duration::from_secs(1);
        let later = UNIX_EPOCH + Duration::from_secs(1);
        let others = [
            at("cats", time),
            at("cat", time + Duration::from_secs(1)),
            at("cat", earlier),
            at("cat", later),
        ];
        for (at, one) in others.iter().enumerate() {
            assert_ne!(first.stamp(), one.stamp());
            assert!(others[..at].iter().all(|other| other.stamp() != one.stamp()));
            assert_eq!(one.path(), path.to_str().unwrap());
        }
    }

    #[test]
    fn the_content_decides_whatever_the_time_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, "cat").unwrap();
        let first = FileId::of_content(&path).unwrap();
        set_time(&path, UNIX_EPOCH);
        assert_eq!(first, FileId::of_content(&path).unwrap());
        write(&path, "dog").unwrap();
        assert_ne!(first, FileId::of_content(&path).unwrap());
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        for error in
            [FileId::of("no such file").unwrap_err(), FileId::of_content("no such file").unwrap_err()]
        {
            assert!(error.to_string().contains("`no such file`") && error.kind() == ErrorKind::Io, "{error}");
        }
    }
}
