//! Writing and removing objects whose names are theirs alone: writing one twice changes nothing.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt, PutPayload};

use super::{Bucket, Client};
use crate::client::error::Failure;
use crate::client::retry::{Deadline, LARGEST_REQUEST};

/// Longer objects are written in parts of this length, which is also the longest that one request writes: few requests, because each
/// has a price.
const PART: u64 = LARGEST_REQUEST;

/// Parts in flight together, each in memory.
const PARTS_IN_FLIGHT: usize = 4;

/// How an object was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// By one request, which was answered.
    ForGood,
    /// Others before it had no answer, or an error: the store may do what they ask for later.
    PerhapsAgain,
}

impl Bucket {
    /// Writes an object. One that has its name is replaced, so it has to be the same.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access. The object may be there all the same, also later.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let key = self.key(name)?;
        self.call("write", name, bytes.len() as u64, |client, deadline| async move {
            put(&client, deadline, &key, bytes.into()).await
        })
    }

    /// As [`put`](Self::put), with the first `bytes` bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). Also returns an error if the file is shorter or cannot be read.
    pub fn upload(&self, name: &str, from: &Arc<File>, bytes: u64) -> io::Result<()> {
        let (key, from) = (self.key(name)?, from.clone());
        self.call("write", name, bytes, move |client, deadline| async move {
            if bytes <= PART {
                let payload = read_part(&from, 0, bytes)?;
                return put(&client, deadline, &key, payload).await;
            }
            upload_parts(&client, deadline, &key, &from, bytes).await
        })
    }

    /// Removes an object. One that is not there is no error.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached or denies access.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        self.remove(name).map(drop)
    }

    /// As [`delete`](Self::delete). Says whether nothing of it may still be on its way to the store.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete).
    pub(crate) fn remove(&self, name: &str) -> io::Result<Removed> {
        let key = self.key(name)?;
        self.call("remove", name, 0, |client, mut deadline| async move {
            let mut tries = 0;
            let removed = client.attempts(&mut deadline, || {
                tries += 1;
                client.store.delete(&key)
            });
            match removed.await {
                Err(failure) if failure.kind != io::ErrorKind::NotFound => Err(failure),
                _ if tries == 1 => Ok(Removed::ForGood),
                _ => Ok(Removed::PerhapsAgain),
            }
        })
    }
}

async fn put(client: &Client, mut deadline: Deadline, key: &Path, bytes: Bytes) -> Result<(), Failure> {
    let payload = PutPayload::from(bytes);
    let written = client.attempts(&mut deadline, || client.store.put(key, payload.clone()));
    written.await.map(drop)
}

async fn upload_parts(
    client: &Client,
    mut deadline: Deadline,
    key: &Path,
    from: &Arc<File>,
    bytes: u64,
) -> Result<(), Failure> {
    let id = client.attempts(&mut deadline, || client.store.create_multipart(key)).await?;
    let done = write_parts(client, deadline, (key, &id), from, bytes).await;
    if done.is_err() {
        // Parts of an upload that is neither completed nor given up cost money and are in no listing. If this fails too, the rule
        // that `docs/remote.md` names removes them.
        let _ = client.attempt(&mut deadline, client.store.abort_multipart(key, &id)).await;
    }
    done
}

async fn write_parts(
    client: &Client,
    deadline: Deadline,
    (key, id): (&Path, &MultipartId),
    from: &Arc<File>,
    bytes: u64,
) -> Result<(), Failure> {
    let parts = (0..bytes).step_by(PART as usize).enumerate();
    let written = stream::iter(parts).map(|(number, at)| async move {
        let part = PutPayload::from(read_part(from, at, PART.min(bytes - at))?);
        client.attempts(&mut { deadline }, || client.store.put_part(key, id, number, part.clone())).await
    });
    let parts = written.buffered(PARTS_IN_FLIGHT).try_collect::<Vec<_>>().await?;
    // Not tried again: the answer to a second try says that there is no such upload. The caller begins another one.
    let complete = client.store.complete_multipart(key, id, parts);
    // The parts have waited for others of this process, which takes nothing of the time for this.
    client.attempt(&mut deadline.again(), complete).await.map(drop)
}

fn read_part(from: &File, at: u64, length: u64) -> Result<Bytes, Failure> {
    let mut part = vec![0; length as usize];
    read_at(from, &mut part, at).map_err(|error| Failure::local(&error))?;
    Ok(part.into())
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !bytes.is_empty() {
        let read = file.seek_read(bytes, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (bytes, at) = (&mut bytes[read..], at + read as u64);
    }
    Ok(())
}
