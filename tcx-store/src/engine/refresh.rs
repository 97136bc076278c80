//! Looks for what other processes have added to the folder: now and then, and before rows are computed.

use std::io;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::changes::Seen;
use crate::engine::Core;
use crate::error::{ErrorKind, Result};
use crate::live::refresh::{ListAt, Refresh};
use crate::storage::LOOK_AGAIN_AFTER;
use crate::storage::name::FileName;
use crate::sys::runtime;
use crate::sys::runtime::lock;

impl Core {
    /// Looks for new files if it is time to.
    pub(crate) fn refresh_if_due(&self) -> Result<bool> {
        match self.refresh.try_lock() {
            Ok(mut refresh) if refresh.is_due() => {
                let is_new = self.refresh_with(&mut refresh, false)?;
                if refresh.may_have_moved(self.storage.moves()) {
                    self.map_arrived();
                }
                Ok(is_new)
            }
            // Another thread is at it.
            _ => Ok(false),
        }
    }

    /// Maps segments that have come to this machine since they were opened, without a listing.
    fn map_arrived(&self) {
        // The next look is soon.
        let Ok(mut live) = self.live.try_lock() else { return };
        if live.map_arrived() {
            self.install(&mut live);
        }
    }

    /// Looks for new files because rows are missing; lists only if the folder seems to have changed.
    pub(crate) fn refresh_on_miss(&self) -> Result<bool> {
        match self.refresh.try_lock() {
            Ok(mut refresh) => self.refresh_with(&mut refresh, false),
            Err(_) => Ok(false),
        }
    }

    /// Looks for new files because rows are missing, and for changes however lately the folder was listed: those that are there
    /// now must not kill what is computed next. Where a look is a request to another machine, [`Looks`] says for how long one is enough,
    /// unless it is to be `certain`. Returns whether anything may be new since `seen`.
    pub(crate) fn refresh_before_computing(&self, seen: &Seen, certain: bool) -> Result<bool> {
        let listed = self.refresh_on_miss()?;
        // Rows that are not kept are killed by no change.
        if !self.is_read_only.load(Ordering::Relaxed) {
            match self.learn_changes(certain) {
                // A lost mount makes misses, not errors.
                Err(error) if error.kind() != ErrorKind::Io => return Err(error),
                _ => {}
            }
        }
        Ok(listed || self.snapshot().outlived != seen.number)
    }

    /// Lists the folder if there is a change that is not known, or looks for one unless the last look is enough.
    fn learn_changes(&self, certain: bool) -> Result<()> {
        if certain || self.storage.list_every().is_none() {
            return self.learn_changes_now().map(drop);
        }
        let look = self.looks.begin();
        if is_behind(self.shown_changes()) || look.is_due() {
            let learned = self.learn_changes_now();
            if matches!(learned, Ok(true)) {
                look.was_answered();
            }
            learned?;
        }
        Ok(())
    }

    /// Lists the folder if there is a change that is not known. Of several threads that find one, the first lists. Returns whether the look
    /// was answered, and what it has found is known now.
    fn learn_changes_now(&self) -> Result<bool> {
        let known = self.shown_changes();
        let is_there = if is_behind(known) { Some(true) } else { self.is_change_after(known.0) };
        if is_there != Some(true) {
            return Ok(is_there.is_some());
        }
        let mut refresh = lock(&self.refresh);
        // What another thread has listed since may be older than the newest change when this was called, so its name decides again.
        let listed = self.shown_changes();
        if listed == known || is_behind(listed) || self.is_change_after(listed.0) == Some(true) {
            self.refresh_with(&mut refresh, true)?;
        }
        // A listing may be late.
        let learned = self.shown_changes();
        Ok(!is_behind(learned) && learned.0 > known.0)
    }

    /// The newest change that readers know, and the newest that rows outlive which are computed now.
    fn shown_changes(&self) -> (u64, u64) {
        let snapshot = self.snapshot();
        (snapshot.known, snapshot.outlived)
    }

    /// Whether there is a change after this one; `None` if that cannot be found out. Changes have names: to look for the next one takes no
    /// listing.
    fn is_change_after(&self, known: u64) -> Option<bool> {
        match self.storage.info(&FileName::Change(known.saturating_add(1)).to_string()) {
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    /// The time until another look at files that look damaged for the first time, and may have been misread.
    pub(crate) fn another_look_in(&self) -> Option<Duration> {
        if runtime::is_simulated() {
            return None;
        }
        let corrupt_since = *lock(&self.corrupt_since);
        let since = self.live().in_doubt_since().max(corrupt_since)?;
        LOOK_AGAIN_AFTER.checked_sub(runtime::now().duration_since(since))
    }

    /// Whether the last listing would have another stamp if the folder had changed since it was begun.
    pub(crate) fn is_stamp_settled(&self) -> bool {
        self.storage.list_every().is_some() || lock(&self.refresh).is_settled()
    }

    /// Lists the folder in any case.
    pub(crate) fn refresh_now(&self) -> Result<bool> {
        self.storage.try_now();
        let mut refresh = lock(&self.refresh);
        self.refresh_with(&mut refresh, true)
    }

    fn refresh_with(&self, refresh: &mut Refresh, always: bool) -> Result<bool> {
        let stamp = || self.storage.stamp().unwrap_or_default();
        let every = self.storage.list_every();
        let at = if always { Some(refresh.list_at(stamp)) } else { refresh.should_list(every, stamp) };
        let Some(at) = at else { return Ok(false) };
        // While the writer is at the files, a hit does not wait for it.
        let live = match self.live.try_lock() {
            Ok(live) => Some(live),
            Err(TryLockError::Poisoned(live)) => Some(live.into_inner()),
            Err(TryLockError::WouldBlock) => always.then(|| self.live()),
        };
        let Some(mut live) = live else { return Ok(false) };
        let learned = live.refresh();
        self.note_listing(&learned);
        // What was not learned is looked for again, whatever the stamp says.
        refresh.listed(if learned.is_ok() { at } else { ListAt::new(None) });
        match learned {
            Ok(new) => {
                *lock(&self.corrupt_since) = None;
                if new {
                    self.install(&mut live);
                }
                Ok(new)
            }
            // A lost mount makes misses, not errors.
            Err(error) if error.kind() == ErrorKind::Io && !always => Ok(false),
            // Nor does a folder that is copied into place.
            Err(error) if !always && self.may_be_misread(&error) => Ok(false),
            Err(error) => {
                self.remember(&error);
                Err(error)
            }
        }
    }

    /// Counts a listing that failed. Lookups go on without it, so the first failure is logged, and the first after a success:
    /// "cannot look for rows of other processes", and why.
    fn note_listing(&self, learned: &Result<bool>) {
        let failed = learned.as_ref().err().filter(|error| error.kind() == ErrorKind::Io);
        self.counters.failed_listings.add(usize::from(failed.is_some()));
        self.failing.note(
            "look for rows of other processes",
            self.storage.path(),
            failed.map_or(Ok(()), Err),
        );
    }
}

/// Whether the folder was not listed since a change was found that may commit segments.
fn is_behind((known, outlived): (u64, u64)) -> bool {
    outlived < known
}
