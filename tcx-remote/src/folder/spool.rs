//! Segments that wait to be sent. They are durable here, and every process of the machine may send them.
//!
//! A segment may be sent at any later time: a tombstone that came while it waited kills its rows, because its number is greater than the
//! base of the segment. But the numbers have to be those of the same history. So what waits lies in a folder that names the history, and
//! is sent only where the store has that.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tcx_store::unstable::{Mapped, runtime, verify_file};

use super::Inner;
use super::reach::is_away;
use super::sending::SENDERS;
use crate::near::Spooled;
use crate::near::budget::Admitted;
use crate::near::lock::{Attempt, WAIT_AT_MOST, lock_within};

/// A module that is not in the store is looked for again after this time, to send segments of other processes.
const ASKED_EVERY: Duration = Duration::from_secs(30);

impl Inner {
    /// Gives a segment of this history its name: it waits here, durably, and is sent in the background.
    pub(super) fn publish(self: &Arc<Self>, from: &Path, origin: &str, name: &str) -> io::Result<()> {
        self.check_room()?;
        self.near.to_spool(from, origin, name)?;
        self.state(|state| state.own.insert(name.to_owned()))?;
        self.send_later();
        Ok(())
    }

    fn check_room(&self) -> io::Result<()> {
        // What belongs to a module that the store has no more takes no room from this one.
        let counts = |spooled: &Spooled| {
            self.state(|state| {
                state.own.contains(&spooled.name) || !state.refused_origins.contains_key(&spooled.origin)
            })
        };
        let bytes = || {
            let waiting = self.near.spooled()?.into_iter();
            io::Result::Ok(
                waiting.filter(|own| counts(own).unwrap_or(true)).map(|own| own.bytes).sum::<u64>(),
            )
        };
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

    /// Sends everything that waits, but for segments of other processes that another one has the lock of.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached, or if a segment of this process still waits or is lost.
    pub(super) fn settle(&self) -> io::Result<()> {
        self.settle_these(|_| true)
    }

    /// As [`settle`](Self::settle), of this process alone.
    pub(super) fn settle_own(&self) -> io::Result<()> {
        self.settle_these(|name| self.is_own(name).unwrap_or(true))
    }

    fn settle_these(&self, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
        // Before what waits is listed: what is not in that list was sent, or is lost.
        let own = self.state(|state| state.own.clone())?;
        let mut waiting = self.near.spooled()?;
        for name in own.iter().filter(|name| !waiting.iter().any(|spooled| spooled.name == **name)) {
            self.check_sent(name)?;
        }
        waiting.retain(|spooled| wanted(&spooled.name));
        let failed = self.send_all(waiting)?;
        self.take_back_again()?;
        self.check_lost()?;
        failed.map_or(Ok(()), Err)
    }

    /// Sends these segments, a few at the same time. Returns why one of this process was refused, if any was.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be reached.
    fn send_all(&self, waiting: Vec<Spooled>) -> io::Result<Option<io::Error>> {
        let threads = waiting.len().min(SENDERS);
        let (next, failed) = (Mutex::new(waiting.into_iter()), Mutex::new((None, None)));
        let work = || {
            loop {
                let Some(spooled) = guarded(&next).next() else { return };
                let sent = self.send_one(&spooled);
                let mut failed = guarded(&failed);
                let (away, refused): &mut (Option<io::Error>, Option<io::Error>) = &mut failed;
                match sent {
                    Err(error) if is_away(&error) => {
                        away.get_or_insert(error);
                        // Nor can the others be sent.
                        guarded(&next).by_ref().for_each(drop);
                    }
                    Err(error) if self.is_own(&spooled.name).unwrap_or(true) => {
                        refused.get_or_insert(error);
                    }
                    Err(error) => {
                        tracing::warn!(path = %spooled.path.display(), "a segment is not sent: {error}");
                    }
                    Ok(()) => {}
                }
            }
        };
        if runtime::is_simulated() {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(work);
                }
                work();
            });
        }
        let (away, refused) = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        away.map_or(Ok(refused), Err)
    }

    /// Notes whether a segment of this process, which waits no longer, was sent, or removed on purpose.
    fn check_sent(&self, name: &str) -> io::Result<()> {
        let is_settled = self.near.take_departure(name)
            || self.near.file(name).exists()
            || self.send(|bucket| bucket.head(&self.key(name)))?.is_some();
        self.state(|state| {
            // Another thread may have noted it in the meantime.
            if state.own.remove(name) && !is_settled {
                state.lost.insert(name.to_owned());
            }
        })
    }

    /// As [`settle`](Self::settle), for a caller that gets the error: segments that are lost are reported once. The caller goes by rows that
    /// it has found, too: those are in the store then.
    pub(super) fn settle_and_report(&self) -> io::Result<()> {
        let settled = self.settle().and_then(|()| self.settle_shown());
        if settled.as_ref().is_err_and(|error| !is_away(error)) {
            self.state(|state| state.lost.clear())?;
        }
        settled
    }

    /// Sends the segments of other processes that a listing has shown to the engine, or waits for a process that sends them. One that waits no
    /// longer was sent, or removed on purpose.
    fn settle_shown(&self) -> io::Result<()> {
        let shown = self.state(|state| state.shown.clone())?;
        if shown.is_empty() {
            return Ok(());
        }
        for spooled in self.near.spooled()?.iter().filter(|spooled| shown.contains(&spooled.name)) {
            match self.send_within(spooled, longest(spooled), true) {
                // No row of a damaged part was found. It cannot be sent, now or later.
                Err(error)
                    if error.kind() == ErrorKind::InvalidData && !self.was_refused(&spooled.origin)? =>
                {
                    tracing::warn!(path = %spooled.path.display(), "a segment is not sent: {error}");
                }
                sent => sent?,
            }
        }
        Ok(())
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

    /// Sends a segment. If it is this process's, one that has its lock is waited for, as long as it may take to send it.
    pub(super) fn send_one(&self, spooled: &Spooled) -> io::Result<()> {
        let is_own = self.is_own(&spooled.name)?;
        self.send_within(spooled, if is_own { longest(spooled) } else { Duration::ZERO }, is_own)
    }

    /// As [`send_one`](Self::send_one), which waits for another process at most so long. With `counts`, a caller counts on the segment as on
    /// one of this process.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind `ResourceBusy` if that process still has the lock of a segment of this one. To go on without it could
    /// lose rows: the holder may have found that another module is in place, and be about to remove the object. Returns one of the kind
    /// `InvalidData` if the store has another module or the segment is damaged, `WouldBlock` while a removal of it may come, and others if
    /// the store or the near tier cannot be reached.
    pub(super) fn send_within(&self, spooled: &Spooled, longest: Duration, counts: bool) -> io::Result<()> {
        let Spooled { origin, name, path, bytes } = spooled;
        let alone = lock_within(&self.near.lock(name), longest)?;
        let is_own = self.is_own(name)?;
        match alone {
            Attempt::Own(_) => {}
            Attempt::Busy if counts => return Err(busy(path, longest)),
            // Another process sends it, or the one that it is of. Either may end before it has.
            Attempt::Busy => return self.state(|state| state.departures.skipped = true),
        }
        let file = match File::open(path) {
            // Another process has sent or removed it, or it is lost.
            Err(error) if error.kind() == ErrorKind::NotFound && is_own => return self.check_sent(name),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if !is_own && self.was_refused(origin)? {
            self.take_back_sent(origin, name);
            return if counts { Err(self.other_module(origin)) } else { Ok(()) };
        }
        if !self.is_of(origin)? {
            // An earlier try may have brought it there, though its reply was an error.
            self.take_back_sent(origin, name);
            return Err(self.other_module(origin));
        }
        if !is_own {
            let damaged =
                |what| io::Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display()));
            verify_file(name, &Mapped::new(&file)?).map_err(damaged)?;
        }
        self.check_removed(name, path)?;
        // It leaves room for what a lookup asks for: parts of segments take long.
        let bucket = self.bucket.in_background();
        let sent = self.noted(bucket.upload(&self.key(name), &Arc::new(file), *bytes));
        self.wrote()?;
        sent?;
        if !self.is_of(origin)? {
            // Another module has come in the place of the one that it belongs to.
            self.take_back_sent(origin, name);
            return Err(self.other_module(origin));
        }
        if !is_own {
            self.near.note_departure(name);
        }
        let kept = self.budget.admit(*bytes, || fs::rename(path, self.near.file(name)));
        if !matches!(kept, Ok(Admitted::Made(()))) {
            if let Err(error) = kept {
                tracing::debug!(segment = %name, "no copy is kept: {error}");
            }
            // It is in the store, and read there from now on; it must not be sent again.
            super::held::remove(path)?;
        }
        self.state(|state| state.own.remove(name)).map(drop)
    }

    /// Whether the store was found a moment ago to have another module than that of this history.
    fn was_refused(&self, origin: &str) -> io::Result<bool> {
        let refused = self.state(|state| state.refused_origins.get(origin).copied())?;
        Ok(refused.is_some_and(|since| runtime::now().duration_since(since) < ASKED_EVERY))
    }

    /// Whether the store has the module of this history now.
    pub(super) fn is_of(&self, origin: &str) -> io::Result<bool> {
        self.reach.try_now();
        let is_same = self.has_origin(origin)?;
        self.state(|state| {
            if is_same {
                state.refused_origins.remove(origin);
            } else {
                state.refused_origins.insert(origin.to_owned(), runtime::now());
            }
        })?;
        Ok(is_same)
    }

    fn other_module(&self, origin: &str) -> io::Error {
        let what = format!(
            "{} is not the module any more that the rows in {} were computed for: it was removed, or an older copy has taken its place; \
             restore it, or remove these rows",
            self.path().display(),
            self.near.dir().join("spool").join(origin).display()
        );
        io::Error::new(ErrorKind::InvalidData, what)
    }
}

/// How long a process that has the lock of a segment may take to send it, as the deadline of a transfer.
fn longest(spooled: &Spooled) -> Duration {
    WAIT_AT_MOST + Duration::from_secs(spooled.bytes >> 20)
}

fn busy(path: &Path, longest: Duration) -> io::Error {
    let what = format!(
        "{} is not sent yet: for {} seconds, another process of this machine has sent, received or removed it, or was stopped while it did; \
         its rows wait and are sent later, so flush again, or end that process",
        path.display(),
        longest.as_secs()
    );
    io::Error::new(ErrorKind::ResourceBusy, what)
}

fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
