//! Writing and removing objects whose names are theirs alone: writing one twice changes nothing.

use std::fs::File;
use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt, PutPayload};

use tokio::time::Instant;

use super::{Bucket, Client};
use crate::client::error::Failure;
use crate::client::retry::Deadline;

/// Parts of an object that are in flight together.
const PARTS_IN_FLIGHT: usize = 4;

/// A body is long that has at least this part of the longest: an upload of it that is too slow is not alone to blame.
const LONG: u64 = 32;

/// Of an upload: more would not be faster, or have more time.
const SLOW_TRIES: u32 = 8;

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
        let length = bytes.len() as u64;
        self.call("write", name, length, move |client, deadline| async move {
            put(&client, deadline.in_one(length), &key, bytes.into()).await
        })
    }

    /// As [`put`](Self::put), with the first `bytes` bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put). Also returns an error if the file is shorter or cannot be read.
    pub fn upload(&self, name: &str, from: &Arc<File>, bytes: u64) -> io::Result<()> {
        let (key, from) = (self.key(name)?, from.clone());
        // Longer objects are written in parts of the longest length that one request writes: few requests, because each has a price.
        let part = self.0.options.pace.largest;
        self.call("write", name, bytes, move |client, deadline| async move {
            if bytes > part {
                return upload_parts(&client, deadline, &key, (&from, bytes), part).await;
            }
            if bytes < part / LONG {
                let payload = read_part(&from, 0, bytes)?;
                return put(&client, deadline, &key, payload).await;
            }
            let send = |payload| client.store.put(&key, payload);
            client.send_long(deadline, &key, || read_part(&from, 0, bytes), send).await.map(drop)
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

impl Client {
    /// Sends a long body, when there is a lane for it: until then, it is not in memory. If it does not arrive in time although the store
    /// answers, the line is slow, or shared by too many, which takes nothing of the time of the call.
    async fn send_long<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        mut deadline: Deadline,
        key: &Path,
        read: impl Fn() -> Result<Bytes, Failure>,
        send: impl Fn(PutPayload) -> F,
    ) -> Result<T, Failure> {
        let mut slow = 0;
        loop {
            let waited = Instant::now();
            let mut lane = self.lanes.enter().await;
            deadline.extend(waited.elapsed());
            let permits = self.room(&mut deadline).await;
            let payload = PutPayload::from(read()?);
            let (start, time) = (Instant::now(), deadline.slower(lane.begin()));
            let failure = match time.attempt(send(payload)).await {
                Err(failure) => failure,
                Ok(done) => {
                    lane.arrived(time.share(start.elapsed()));
                    return Ok(done);
                }
            };
            drop(permits);
            if failure.kind == io::ErrorKind::TimedOut && self.answers(deadline, key).await {
                slow += 1;
                if !lane.was_slow() || slow == SLOW_TRIES {
                    return Err(Failure::too_slow());
                }
                deadline.extend(start.elapsed());
                continue;
            }
            drop(lane);
            if !failure.is_transient || !deadline.pause().await {
                return Err(failure);
            }
        }
    }

    /// Whether the store answers a request that transfers nothing.
    async fn answers(&self, deadline: Deadline, key: &Path) -> bool {
        // On a slow line, the first try may be too slow as well.
        let answer = self.attempts(&mut deadline.short(), || self.store.head(key)).await;
        !answer.is_err_and(|failure| failure.is_transient)
    }
}

async fn upload_parts(
    client: &Client,
    mut deadline: Deadline,
    key: &Path,
    from: (&Arc<File>, u64),
    part: u64,
) -> Result<(), Failure> {
    let id = client.attempts(&mut deadline, || client.store.create_multipart(key)).await?;
    let done = write_parts(client, deadline, (key, &id), from, part).await;
    if done.is_err() {
        // Parts of an upload that is neither completed nor given up cost money and are in no listing. If this fails too, the rule
        // that `docs/remote.md` names removes them. The time of the call may be over.
        let _ = client.attempts(&mut deadline.short(), || client.store.abort_multipart(key, &id)).await;
    }
    done
}

/// Each part has the time of a call: it waits for others of this process.
async fn write_parts(
    client: &Client,
    deadline: Deadline,
    (key, id): (&Path, &MultipartId),
    (from, bytes): (&Arc<File>, u64),
    part: u64,
) -> Result<(), Failure> {
    let parts = (0..bytes).step_by(part as usize).enumerate();
    let written = stream::iter(parts).map(|(number, at)| async move {
        let length = part.min(bytes - at);
        let send = |payload| client.store.put_part(key, id, number, payload);
        client.send_long(deadline.of(length), key, || read_part(from, at, length), send).await
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tcx_test_s3::{Fault, Operation, Server};

    use super::*;
    use crate::bucket::testing::bucket;
    use crate::folder::is_taken_for_away;
    use crate::options::Pace;

    fn file(length: usize, byte: u8) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![byte; length]).unwrap();
        file.into()
    }

    #[test]
    fn long_segments_that_are_sent_together_arrive_over_a_slow_line() {
        let server = Server::start();
        server.fail(|faults| faults.bandwidth = 4 << 20);
        let bucket = bucket(&server, Pace { slowest: 4 << 20, largest: 1 << 20 }, Duration::from_secs(1));
        // Each has half a second, and all of them take one and a half.
        std::thread::scope(|scope| {
            for (number, length) in [1 << 20, 1 << 20, 1 << 20, 1 << 20, 2 << 20].into_iter().enumerate() {
                let (bucket, file) = (&bucket, file(length, number as u8));
                scope.spawn(move || bucket.upload(&format!("m/{number}"), &file, length as u64).unwrap());
            }
        });
        for (number, length) in [1 << 20, 1 << 20, 1 << 20, 1 << 20, 2 << 20].into_iter().enumerate() {
            assert!(server.object(&format!("p/m/{number}")).unwrap() == vec![number as u8; length]);
        }
    }

    #[test]
    fn an_upload_has_more_time_where_other_processes_share_the_line() {
        let server = Server::start();
        // It takes two seconds, and has a third of one.
        server.fail(|faults| faults.bandwidth = 512 << 10);
        let bucket = bucket(&server, Pace { slowest: 1 << 30, largest: 1 << 20 }, Duration::from_secs(1));
        bucket.upload("m/x", &file(1 << 20, 7), 1 << 20).unwrap();
        assert!(server.object("p/m/x").unwrap() == vec![7; 1 << 20]);
    }

    #[test]
    fn a_store_that_answers_is_not_away_though_nothing_long_arrives() {
        let server = Server::start();
        let bucket = bucket(&server, Pace { slowest: 1 << 30, largest: 1 << 20 }, Duration::from_millis(900));
        for _ in 0..SLOW_TRIES {
            server.fail_next(Operation::Put, "x", Fault::Late(Duration::from_mins(1)));
        }
        let slow = bucket.upload("m/x", &file(1 << 20, 7), 1 << 20).unwrap_err();
        assert_eq!(slow.kind(), io::ErrorKind::TimedOut);
        assert!(slow.to_string().contains("the line to the store is too slow"), "{slow}");
        assert!(!is_taken_for_away(slow));
        server.forget_planned();
        server.fail(|faults| faults.latency = Duration::from_mins(1));
        let away = bucket.upload("m/x", &file(1 << 20, 7), 1 << 20).unwrap_err();
        assert!(away.to_string().contains("did not answer in time"), "{away}");
        assert!(is_taken_for_away(away));
    }

    #[test]
    fn an_upload_whose_time_is_over_leaves_no_parts() {
        let server = Server::start();
        let bucket = bucket(&server, Pace { slowest: 1 << 30, largest: 1 << 20 }, Duration::from_millis(900));
        // The parts are not answered, nor is anything else until the deadline.
        server.fail_next(Operation::Put, "x", Fault::Late(Duration::ZERO));
        (0..20).for_each(|_| server.fail_next(Operation::Put, "x", Fault::Late(Duration::from_mins(1))));
        (0..20).for_each(|_| server.fail_next(Operation::Head, "x", Fault::Late(Duration::from_mins(1))));
        bucket.upload("m/x", &file(2 << 20, 7), 2 << 20).unwrap_err();
        assert_eq!((server.open_uploads(), server.object("p/m/x")), (0, None));
    }
}
