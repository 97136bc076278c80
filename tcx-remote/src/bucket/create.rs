//! Creating objects of which only one may have a name.
//!
//! What a store answers to such a request is not the truth. A conflict is reported as "already exists" though nothing was created; a
//! request that was tried again meets what the first try has created; and an answer may be lost. So everything but a plain success is
//! followed by a read and a comparison: the bytes contain a nonce, and are either those of the caller or another's.

use std::io;

use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload};
use tcx_store::unstable::runtime;

use super::read::read;
use super::{Bucket, Client};
use crate::client::error::Failure;
use crate::client::retry::Deadline;

/// Objects that are created are short. One that is longer is another's.
const MOST: u64 = 1 << 40;

/// Stores refuse longer ones in a single request, and only a single request has a condition.
const LONGEST: u64 = 5 << 30;

/// What became of the creation of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object is the caller's.
    Own,
    /// Another has the name, with these bytes.
    Other(Vec<u8>),
}

impl Bucket {
    /// Creates an object unless there is one of its name. The bytes have to be different from all that other callers create: they
    /// decide whose object it is.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, denies access, or cannot create objects conditionally. The object may be there
    /// all the same, also later: nothing may be removed because of it. Returns one of the kind `FileTooLarge` if there are more than 5
    /// GiB, which no store takes in one request.
    pub fn create(&self, name: &str, bytes: &[u8]) -> io::Result<Created> {
        let (key, length) = (self.key(name)?, bytes.len() as u64);
        self.check_length(name, length)?;
        let bytes = bytes.to_vec();
        self.call("create", name, length, move |client, deadline| async move {
            create(&client, deadline.in_one(length), &key, bytes).await
        })
    }

    fn check_length(&self, name: &str, bytes: u64) -> io::Result<()> {
        if bytes <= LONGEST {
            return Ok(());
        }
        let what = format!(
            "cannot create {}: it has {bytes} bytes, and a store takes at most {LONGEST} in one request; invalidate or replace fewer rows \
             at a time",
            self.url().show(name)
        );
        Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
    }

    /// Makes sure that the store creates an object only if no other has its name. Some ignore the condition and replace what is
    /// there, which no answer shows: so an object is created twice.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind `Unsupported` if the store ignores the condition, and another one if that cannot be said.
    pub fn check_conditional_puts(&self) -> io::Result<()> {
        let name = format!(".tcx-probe-{:032x}", u128::from_le_bytes(runtime::random()));
        let probed = self.create(&name, b"first").and_then(|_| self.create(&name, b"second"));
        // Its name is random: it is no other's, whatever the answers were. If it stays, no process reads it.
        let _ = self.delete(&name);
        match probed? {
            Created::Other(found) if found == b"first" => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "cannot write to {}: the store ignores `If-None-Match: *` and replaces objects that exist, so two machines could give \
                     one number to two changes; use a store that supports conditional writes",
                    self.url()
                ),
            )),
        }
    }
}

async fn create(
    client: &Client,
    mut deadline: Deadline,
    key: &Path,
    bytes: Vec<u8>,
) -> Result<Created, Failure> {
    let payload = PutPayload::from(bytes.clone());
    loop {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = client.store.put_opts(key, payload.clone(), options);
        let Err(failure) = client.attempt(&mut deadline, put).await else { return Ok(Created::Own) };
        let exists = failure.kind == io::ErrorKind::AlreadyExists;
        if !exists && !failure.is_transient {
            return Err(failure);
        }
        match read(client, deadline, key, MOST).await {
            Ok(found) if found == bytes => return Ok(Created::Own),
            Ok(found) => return Ok(Created::Other(found)),
            // Nothing was created, or nothing yet.
            Err(absent) if absent.kind == io::ErrorKind::NotFound => {}
            Err(unread) => return Err(unread),
        }
        if !deadline.pause().await {
            return Err(if exists { Failure::conflict() } else { failure });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tcx_test_s3::Server;

    use super::*;
    use crate::bucket::testing::bucket;
    use crate::options::Pace;

    #[test]
    fn a_long_object_has_as_much_more_time_in_its_one_request() {
        let server = Server::start();
        // It takes half a second.
        server.fail(|faults| faults.bandwidth = 2 << 20);
        let pace = Pace { slowest: 1 << 20, largest: 32 << 10 };
        let bucket = bucket(&server, pace, Duration::from_millis(900));
        assert_eq!(bucket.create("m/change", &vec![7; 1 << 20]).unwrap(), Created::Own);
    }

    #[test]
    fn an_object_that_no_store_takes_in_one_request_is_refused_by_its_length() {
        let server = Server::start();
        let bucket = bucket(&server, Pace::USUAL, Duration::from_secs(1));
        bucket.check_length("m/change", LONGEST).unwrap();
        let refused = bucket.check_length("m/change", LONGEST + 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert!(refused.to_string().contains("/p/m/change: it has 5368709121 bytes"), "{refused}");
    }
}
