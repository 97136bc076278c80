//! Reading objects: small ones at once, large ones in ranges that are in flight together.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt};

use super::{Bucket, Client, Object};
use crate::client::error::Failure;
use crate::client::retry::Deadline;

/// The longest range that one request reads. Short enough that a connection that hangs costs little, long enough that requests do.
pub(super) const RANGE: u64 = 16 << 20;

impl Bucket {
    /// What a listing would say of an object; `None` if there is no such object.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access.
    pub fn head(&self, name: &str) -> io::Result<Option<Object>> {
        let (key, own) = (self.key(name)?, name.to_owned());
        self.call("look for", name, 0, |client, mut deadline| async move {
            let meta = client.attempts(&mut deadline, || client.store.head(&key)).await;
            if_any(meta.map(|meta| Object::of(meta, own)))
        })
    }

    /// All bytes of an object; `None` if there is no such object.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access, or if the object has more than `most` bytes.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let key = self.key(name)?;
        self.call("read", name, most.min(RANGE), move |client, deadline| async move {
            if_any(read(&client, deadline, &key, most).await)
        })
    }

    /// A part of an object; `None` if there is no such object.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access, or if the object is shorter.
    pub fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Option<Vec<u8>>> {
        self.read_tagged(name, range, None)
    }

    /// As [`read_range`](Self::read_range), of the object that has this tag, if one is given.
    ///
    /// # Errors
    ///
    /// As [`download_tagged`](Self::download_tagged).
    pub(crate) fn read_tagged(
        &self,
        name: &str,
        range: Range<u64>,
        tag: Option<&str>,
    ) -> io::Result<Option<Vec<u8>>> {
        let (key, tag) = (self.key(name)?, tag.map(str::to_owned));
        let bytes = range.end.saturating_sub(range.start);
        self.call("read", name, bytes, |client, deadline| async move {
            let ranges = pieces(range);
            let read = stream::iter(ranges)
                .map(|range| read_tagged(&client, deadline, &key, range, tag.as_deref()))
                .buffered(client.parallel);
            if_any(read.try_collect::<Vec<_>>().await.map(|pieces| pieces.concat()))
        })
    }

    /// Writes the `bytes` bytes of an object to a file; `false` if there is no such object.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access, if the object is shorter, or if the file cannot be written.
    pub fn download(&self, name: &str, bytes: u64, to: &Arc<File>) -> io::Result<bool> {
        self.download_tagged(name, bytes, None, to)
    }

    /// As [`download`](Self::download), of the object that has this tag, if one is given.
    ///
    /// # Errors
    ///
    /// As [`download`](Self::download), and one of the kind `StaleNetworkFileHandle` if another object has the name by now.
    pub(crate) fn download_tagged(
        &self,
        name: &str,
        bytes: u64,
        tag: Option<&str>,
        to: &Arc<File>,
    ) -> io::Result<bool> {
        let (key, to, tag) = (self.key(name)?, to.clone(), tag.map(str::to_owned));
        let read = self.call("read", name, bytes, move |client, deadline| async move {
            let written = stream::iter(pieces(0..bytes)).map(|range| {
                let (at, piece) = (range.start, read_tagged(&client, deadline, &key, range, tag.as_deref()));
                let to = to.clone();
                async move { write_piece(to, piece.await?, at, bytes).await }
            });
            let all = written.buffer_unordered(client.parallel);
            if_any(all.try_collect::<()>().await)
        });
        read.map(|found| found.is_some())
    }
}

/// Writes a piece of a file of this length. Each of several is made durable as it comes, while others are on their way: at the end, all of
/// the file would have to be waited for. The threads that do the requests do not wait for the disk.
async fn write_piece(to: Arc<File>, piece: Vec<u8>, at: u64, bytes: u64) -> Result<(), Failure> {
    let is_all = piece.len() as u64 == bytes;
    let write = move || {
        write_at(&to, &piece, at)?;
        if is_all { Ok(()) } else { to.sync_data() }
    };
    let written = if is_all {
        write()
    } else {
        tokio::task::spawn_blocking(write).await.unwrap_or_else(|ended| Err(io::Error::other(ended)))
    };
    written.map_err(|error| Failure::local(&error))
}

fn if_any<T>(found: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Err(failure) if failure.kind == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Ranges that one request each may read.
fn pieces(range: Range<u64>) -> Vec<Range<u64>> {
    let starts = (range.start..range.end).step_by(RANGE as usize);
    starts.map(|start| start..range.end.min(start + RANGE)).collect()
}

pub(super) async fn read(
    client: &Client,
    mut deadline: Deadline,
    key: &Path,
    most: u64,
) -> Result<Vec<u8>, Failure> {
    let answer = client.attempts(&mut deadline, || async {
        let answer = client.store.get(key).await?;
        let bytes = answer.meta.size;
        // A longer one is read in ranges, and the rest of this answer is not waited for.
        let first = if bytes <= RANGE.min(most) { Some(answer.bytes().await?) } else { None };
        Ok((bytes, first))
    });
    let (bytes, first) = answer.await?;
    match first {
        Some(first) => Ok(first.into()),
        None if bytes > most => Err(Failure::local(&io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has {bytes} bytes, at most {most} were expected"),
        ))),
        None => {
            let read = stream::iter(pieces(0..bytes))
                .map(|range| read_piece(client, deadline, key, range))
                .buffered(client.parallel);
            Ok(read.try_collect::<Vec<_>>().await?.concat())
        }
    }
}

/// A connection may end in the middle of an answer, or nothing comes over it any more: then the rest is read.
pub(super) async fn read_piece(
    client: &Client,
    deadline: Deadline,
    key: &Path,
    range: Range<u64>,
) -> Result<Vec<u8>, Failure> {
    read_tagged(client, deadline, key, range, None).await
}

async fn read_tagged(
    client: &Client,
    mut deadline: Deadline,
    key: &Path,
    range: Range<u64>,
    tag: Option<&str>,
) -> Result<Vec<u8>, Failure> {
    let expected = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut received = Vec::new();
    loop {
        let rest = range.start + received.len() as u64..range.end;
        let options = GetOptions {
            range: Some(GetRange::Bounded(rest)),
            if_match: tag.map(str::to_owned),
            ..GetOptions::default()
        };
        let silence = deadline;
        let read = client.attempt(&mut deadline, async {
            let answer = client.store.get_opts(key, options).await?;
            let mut body = answer.into_stream();
            received.reserve_exact(expected - received.len());
            while let Some(part) = silence.next(body.next()).await? {
                received.extend_from_slice(&part?);
            }
            Ok(())
        });
        let failure = match read.await {
            Ok(()) if received.len() == expected => return Ok(received),
            Ok(()) => Failure::cut_off(),
            Err(failure) if tag.is_some() && failure.is_condition() => return Err(Failure::replaced()),
            Err(failure) => failure,
        };
        if received.len() >= expected {
            // More than was asked for.
            received.clear();
        }
        if !failure.is_transient || !deadline.pause().await {
            return Err(failure);
        }
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        let written = file.seek_write(bytes, at)?;
        (bytes, at) = (&bytes[written..], at + written as u64);
    }
    Ok(())
}
