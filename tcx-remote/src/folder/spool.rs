//! Segments that wait to be sent. They are durable here, and every process of the machine may send them.
//!
//! A segment may be sent at any later time: a tombstone that came while it waited kills its rows, because its number is greater than the
//! base of the segment. But the numbers have to be those of the same history. So what waits lies in a folder that names the history, and
//! is sent only where the store has that.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tcx_store::unstable::{Mapped, verify_file};
use tcx_store::{Trouble, notice};

use super::reach::is_away;
use super::{Inner, SHORT};
use crate::near::Spooled;
use crate::near::lock::lock;

impl Inner {
    /// Gives a segment its name: it waits here, durably, and is sent. If the store is away, it goes on waiting, which is no error.
    pub(super) fn publish(self: &Arc<Self>, from: &Path, name: &str) -> io::Result<()> {
        let origin = self.origin()?;
        self.check_room()?;
        let spooled = self.near.to_spool(from, &origin, name)?;
        self.state(|state| state.own.insert(name.to_owned()))?;
        let sent = self.check_time().and_then(|()| self.send_one(&spooled, SHORT));
        match sent {
            Err(error) if is_away(&error) => {
                if self.start_sending() {
                    let path = self.path().display();
                    tracing::warn!(%path, "rows wait on this machine to be sent: {error}; retrying");
                    let waiting = format_args!(
                        "cannot send rows to {path}: {error}; they wait in {} and are sent as soon as that works; `flush` waits for it",
                        self.near.dir().display()
                    );
                    notice(Trouble::Failing, waiting);
                }
                Ok(())
            }
            Err(error) => {
                // The rows are written again, under another name.
                self.state(|state| state.own.remove(name))?;
                let _ = fs::remove_file(&spooled.path);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn check_room(&self) -> io::Result<()> {
        let bytes = || io::Result::Ok(self.near.spooled()?.iter().map(|own| own.bytes).sum::<u64>());
        if bytes()? <= self.spool_bytes {
            return Ok(());
        }
        // What cannot be sent waits on.
        let _ = self.check_time().and_then(|()| self.settle());
        let waiting = bytes()?;
        if waiting <= self.spool_bytes {
            return Ok(());
        }
        let what = format!(
            "{waiting} bytes wait in {} to be sent to {}; make sure that the store can be reached",
            self.near.dir().display(),
            self.path().display()
        );
        Err(io::Error::new(ErrorKind::StorageFull, what))
    }

    /// Sends everything that waits.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, or if a segment of this process still waits or is lost.
    pub(super) fn settle(&self) -> io::Result<()> {
        // Before what waits is listed: what is not in that list was sent, or is lost.
        let own = self.state(|state| state.own.clone())?;
        let mut failed = None;
        let waiting = self.near.spooled()?;
        for name in own.iter().filter(|name| !waiting.iter().any(|spooled| spooled.name == **name)) {
            self.check_sent(name)?;
        }
        for spooled in waiting {
            match self.send_one(&spooled, Duration::MAX) {
                Err(error) if is_away(&error) => return Err(error),
                Err(error) if self.is_own(&spooled.name)? => failed = failed.or(Some(error)),
                Err(error) => {
                    tracing::warn!(path = %spooled.path.display(), "a segment is not sent: {error}");
                }
                Ok(()) => {}
            }
        }
        self.check_lost()?;
        failed.map_or(Ok(()), Err)
    }

    /// Notes whether a segment of this process, which waits no longer, was sent.
    fn check_sent(&self, name: &str) -> io::Result<()> {
        let is_sent =
            self.near.file(name).exists() || self.send(|bucket| bucket.head(&self.key(name)))?.is_some();
        self.state(|state| {
            // Another thread may have noted it in the meantime.
            if state.own.remove(name) && !is_sent {
                state.lost.insert(name.to_owned());
            }
        })
    }

    /// As [`settle`](Self::settle), for a caller that gets the error: segments that are lost are reported once.
    pub(super) fn settle_and_report(&self) -> io::Result<()> {
        let settled = self.settle();
        if settled.as_ref().is_err_and(|error| !is_away(error)) {
            self.state(|state| state.lost.clear())?;
        }
        settled
    }

    fn check_lost(&self) -> io::Result<()> {
        let lost = self.state(|state| state.lost.len())?;
        if lost == 0 {
            return Ok(());
        }
        let what = format!(
            "{lost} of the segments that waited in {} have vanished before they were sent to {}: their rows are lost, and are computed again",
            self.near.dir().display(),
            self.path().display()
        );
        Err(io::Error::new(ErrorKind::InvalidData, what))
    }

    fn is_own(&self, name: &str) -> io::Result<bool> {
        self.state(|state| state.own.contains(name))
    }

    /// Sends a segment; a large one may take longer than `longest`.
    fn send_one(&self, spooled: &Spooled, longest: Duration) -> io::Result<()> {
        let Spooled { origin, name, path, bytes } = spooled;
        // Another process may be sending it.
        let _alone = lock(&self.near.lock(name))?;
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if !self.is_own(name)? {
            let damaged =
                |what| io::Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display()));
            verify_file(name, &Mapped::new(&file)?).map_err(damaged)?;
        }
        self.check_origin(origin)?;
        let longest = longest.min(self.bucket.deadline());
        let sent = self
            .send(|bucket| bucket.with_deadline(longest).upload(&self.key(name), &Arc::new(file), *bytes));
        self.wrote()?;
        sent?;
        if let Err(error) = self.check_origin(origin) {
            if error.kind() == ErrorKind::InvalidData {
                // Another module has come in the place of the one that it belongs to.
                let _ = self.send(|bucket| bucket.delete(&self.key(name)));
            }
            return Err(error);
        }
        match fs::rename(path, self.near.file(name)) {
            // Another process, which has waited too long for this one, has sent it as well.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => {}
            renamed => renamed?,
        }
        self.state(|state| state.own.remove(name)).map(drop)
    }

    fn check_origin(&self, origin: &str) -> io::Result<()> {
        self.reach.try_now();
        if self.has_origin(origin)? {
            return Ok(());
        }
        let what = format!(
            "{} is not the module any more that the rows in {} were computed for: it was removed, or an older copy has taken its place; \
             restore it, or remove these rows",
            self.path().display(),
            self.near.dir().join("spool").join(origin).display()
        );
        Err(io::Error::new(ErrorKind::InvalidData, what))
    }
}
