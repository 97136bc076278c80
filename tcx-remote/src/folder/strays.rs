//! Changes that stray: created in the moment in which the module was removed, or an older copy took its place. The process that has
//! created one takes it back. Without those before it, the change would keep every process from writing.
//!
//! Change 1 stays: a process that creates the module again creates the one before it, and goes by both.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use tcx_store::unstable::runtime;

use super::changes::Found;
use super::{Inner, SHORT};
use crate::bucket::{Created, Removed};
use crate::copy::files::{Kind, change, kind};

/// What was answered with an error may come to the store as much later.
pub(super) const COMES_WITHIN: Duration = Duration::from_mins(2);

/// A change that this process has created, perhaps in another history than the one that it knows.
#[derive(Debug)]
pub(super) struct Stray {
    name: String,
    bytes: Vec<u8>,
    /// The history that was known before.
    origin: String,
    fate: Fate,
    /// Since when a removal may come of which one try had no answer, or an error.
    removal: Option<Instant>,
}

/// What has become of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Created,
    /// The creation was answered with an error at this time: it may have happened, or happen later.
    InDoubt(Instant),
    /// It was taken back, and only has to be created again if another process may have met it.
    Removed,
}

impl Stray {
    pub(super) fn created(name: &str, bytes: &[u8], origin: String) -> Self {
        Self { name: name.to_owned(), bytes: bytes.to_vec(), origin, fate: Fate::Created, removal: None }
    }

    pub(super) fn doubtful(name: &str, bytes: &[u8], origin: String) -> Self {
        Self { fate: Fate::InDoubt(runtime::now()), ..Self::created(name, bytes, origin) }
    }

    fn is_change(&self) -> bool {
        self.number().is_some()
    }

    /// That of a change; `None` of merged changes.
    fn number(&self) -> Option<u64> {
        match kind(&self.name) {
            Some(Kind::Change(number)) => Some(number),
            _ => None,
        }
    }

    /// Whether it is there, and it was not found to be a change of this history.
    fn is_uncompared(&self) -> bool {
        self.fate == Fate::Created || self.may_go()
    }

    /// Whether no change of this process counts before it was compared. Merged changes say what others say as well.
    fn holds_up(&self) -> bool {
        self.is_change() && self.is_uncompared()
    }

    /// Whether a removal may come still.
    fn may_go(&self) -> bool {
        self.removal.is_some_and(|since| runtime::now().duration_since(since) < COMES_WITHIN)
    }

    /// Whether it may come still.
    fn may_come(&self) -> bool {
        matches!(self.fate, Fate::InDoubt(since) if runtime::now().duration_since(since) < COMES_WITHIN)
    }
}

fn taken_back(stray: &Stray) -> io::Error {
    let what =
        format!("the module was removed or replaced while {} was created, which was taken back", stray.name);
    io::Error::new(ErrorKind::NotFound, what)
}

fn left_there(stray: &Stray) -> io::Error {
    let what = format!(
        "the module was removed while {} was created, which does not count, and stays there until the module is created again",
        stray.name
    );
    io::Error::new(ErrorKind::NotFound, what)
}

impl Inner {
    /// Removes a change that this process has created, if the module was removed or replaced just before. A change whose predecessors are
    /// missing keeps every process from writing. It is certain whose it is, and no process goes by it without those before it.
    ///
    /// Where another change has the number of the one before it, other processes may go by it already, and have created the next: its
    /// number must not be given again. It stays, and kills rows that are computed again. Merged changes have no number of their own, and
    /// would hide the changes of the other history: they go in any case.
    pub(super) fn take_back_unless_same(&self, mut stray: Stray) -> io::Result<()> {
        if stray.fate != Fate::Removed {
            let found = self.find_origin(&stray.origin).and_then(|found| {
                // Without it, the next change would be behind a gap.
                Ok(if found == Found::Absent && self.is_counted_on(&stray)? { None } else { Some(found) })
            });
            let Some(found) = found.transpose() else { return Ok(()) };
            match found {
                // Once it is there, it is a change of this history, and is not to be removed if parts of that are gone for a while.
                Ok(Found::Same) => return self.look_again_unless_created(stray),
                // The comparison that follows says that this is another module. A removal from before must not take it away there.
                Ok(Found::Other) if stray.is_change() && stray.removal.is_none() => return Ok(()),
                Ok(Found::Other) if stray.is_change() => return self.look_again_unless_created(stray),
                // One answer is not enough to remove something: a listing has to agree.
                Ok(Found::Absent) if !self.lacks_origin(&stray) => return self.wait_for_answer(stray),
                Ok(Found::Absent) if stray.number() == Some(1) => return Err(left_there(&stray)),
                Ok(Found::Other | Found::Absent) => {}
                // As long as that cannot be said, it stays, and does not count as created.
                Err(error) => return self.look_again_at(stray).and(Err(error)),
            }
            match self.is_there(&stray) {
                Some(true) => {}
                Some(false) if stray.is_uncompared() => {
                    // A removal that may still come must not meet another change of this number.
                    stray.fate = Fate::Removed;
                    return self.create_again_if_met(stray);
                }
                Some(false) if !stray.may_come() => return Ok(()),
                _ => return self.wait_for_answer(stray),
            }
            // Again: the answers from before may be old by now.
            if !matches!(self.is_met(&stray), Ok(false)) {
                return self.wait_for_answer(stray);
            }
            let removed = self.send(|bucket| bucket.remove(&self.key(&stray.name)));
            self.wrote()?;
            if !matches!(removed, Ok(Removed::ForGood)) {
                stray.removal = Some(runtime::now());
            }
            if let Err(error) = removed {
                stray.fate = Fate::Created;
                self.look_again_at(stray)?;
                return Err(error);
            }
            stray.fate = Fate::Removed;
        }
        self.create_again_if_met(stray)
    }

    /// As [`take_back_unless_same`](Self::take_back_unless_same), for a change whose creation has failed: what becomes of it is no error
    /// beside that.
    pub(super) fn take_back_if_created(&self, stray: Stray) {
        // If the process ends or closes the module before the next listing, this look is the last.
        self.reach.try_now();
        if let Err(error) = self.take_back_unless_same(stray) {
            tracing::debug!(path = %self.path().display(), "{error}");
        }
    }

    /// Whether these are merged changes, and there is a change after them: a process has gone by them, as if those that they are of were there.
    fn is_counted_on(&self, stray: &Stray) -> io::Result<bool> {
        let Some(Kind::Merged(number)) = kind(&stray.name) else { return Ok(false) };
        Ok(self.find_nonce(number.saturating_add(1), "")? == Found::Same)
    }

    /// Whether another process may have gone by a change, because the one before it is there; or has gone by merged changes.
    fn is_met(&self, stray: &Stray) -> io::Result<bool> {
        match stray.number() {
            Some(number) => Ok(self.find_nonce(number.saturating_sub(1), "")? != Found::Absent),
            None => self.is_counted_on(stray),
        }
    }

    /// Whether a listing, too, lacks the newest change of the history in which a change was created, or its first; and the change after
    /// merged changes.
    fn lacks_origin(&self, stray: &Stray) -> bool {
        let newest = stray.origin.split('-').nth(1).and_then(|number| number.parse().ok());
        let next = match kind(&stray.name) {
            Some(Kind::Merged(number)) => number.checked_add(1),
            _ => None,
        };
        let lacks = |newest| {
            let is_missing = |listed: BTreeMap<_, _>| {
                let has = |number: u64| listed.contains_key(&change(number));
                [0, newest].into_iter().any(|own| !has(own)) && !next.is_some_and(has)
            };
            self.list_objects().is_ok_and(is_missing)
        };
        newest.is_some_and(lacks)
    }

    /// Whether the object is the change of this process: its bytes contain a nonce. `None` as long as that cannot be said: nothing is
    /// removed because of such an answer.
    fn is_there(&self, stray: &Stray) -> Option<bool> {
        match self.ask(|bucket| bucket.read(&self.key(&stray.name), stray.bytes.len() as u64)) {
            Ok(found) => Some(found.is_some_and(|found| found == stray.bytes)),
            // Another change, which is longer.
            Err(error) if error.kind() == ErrorKind::InvalidData => Some(false),
            Err(_) => None,
        }
    }

    /// Keeps a change in mind that may come to the store later, or go. The history is the one in which it was created.
    fn look_again_unless_created(&self, mut stray: Stray) -> io::Result<()> {
        if stray.may_go() {
            return self.wait_for_answer(stray);
        }
        if stray.fate == Fate::Created && stray.removal.is_none() {
            return Ok(());
        }
        match self.is_there(&stray) {
            Some(false) if stray.is_uncompared() => {
                stray.fate = Fate::Removed;
                self.create_again_if_met(stray)
            }
            Some(is_there) if is_there || !stray.may_come() => Ok(()),
            _ => self.wait_for_answer(stray),
        }
    }

    /// Looks again later. A change that has not been compared until then does not count as created.
    fn wait_for_answer(&self, stray: Stray) -> io::Result<()> {
        let what =
            format!("the store has not said yet whether {} belongs to the module; try again", stray.name);
        let is_uncompared = stray.is_uncompared();
        self.look_again_at(stray)?;
        if is_uncompared { Err(io::Error::new(ErrorKind::ResourceBusy, what)) } else { Ok(()) }
    }

    /// A change that was taken back is created again if the module was created again between the look and the removal: its processes may
    /// have met the change in between.
    fn create_again_if_met(&self, stray: Stray) -> io::Result<()> {
        let taken_back = Err(taken_back(&stray));
        match self.is_counted_on(&stray) {
            Ok(false) if !stray.is_change() => return taken_back,
            Ok(_) => {}
            Err(_) => return self.look_again_at(stray).and(taken_back),
        }
        if stray.may_go() {
            // It would take away what is created again.
            return self.look_again_at(stray).and(taken_back);
        }
        match self.find_origin(&stray.origin) {
            Ok(Found::Absent) if stray.is_change() => taken_back,
            // Another change has the number of the newest of them: nothing is behind a gap.
            Ok(Found::Other) if !stray.is_change() => taken_back,
            Ok(_) => {
                let short = self.bucket.deadline().min(SHORT);
                let key = self.key(&stray.name);
                let created = self.send(|bucket| bucket.with_deadline(short).create(&key, &stray.bytes));
                self.created()?;
                match created {
                    Ok(Created::Own) => Ok(()),
                    // Another process has got the number in between.
                    Ok(Created::Other(_)) => taken_back,
                    Err(error) => self.look_again_at(stray).and(Err(error)),
                }
            }
            Err(_) => self.look_again_at(stray).and(taken_back),
        }
    }

    fn look_again_at(&self, stray: Stray) -> io::Result<()> {
        self.state(|state| state.strays.push(stray))
    }

    /// Looks again at changes that this process has created, where it could not be said whether the module was still the same.
    pub(super) fn take_back_strays(&self) -> io::Result<()> {
        if let Err(error) = self.look_at_strays(|_| true)? {
            tracing::debug!(path = %self.path().display(), "{error}");
        }
        Ok(())
    }

    /// Makes sure that the changes which this process has created are changes of this module.
    ///
    /// # Errors
    ///
    /// Returns an error if one is not, or if that cannot be said.
    pub(super) fn compare_created(&self) -> io::Result<()> {
        self.look_at_strays(Stray::holds_up)??;
        if self.state(|state| state.comparing)? > 0 {
            let what = "another thread finds out whether a change was created in this module; try again";
            return Err(io::Error::new(ErrorKind::ResourceBusy, what));
        }
        Ok(())
    }

    /// Looks at some of them, and returns the first error.
    fn look_at_strays(&self, wanted: impl Fn(&Stray) -> bool) -> io::Result<io::Result<()>> {
        let (strays, comparing) = self.state(|state| {
            let (wanted, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.strays).into_iter().partition(wanted);
            state.strays = others;
            let comparing = wanted.iter().filter(|stray| stray.holds_up()).count();
            state.comparing += comparing;
            (wanted, Comparing(self, comparing))
        })?;
        let looked: Vec<_> = strays.into_iter().map(|stray| self.take_back_unless_same(stray)).collect();
        drop(comparing);
        Ok(looked.into_iter().collect())
    }
}

/// This number of changes is being compared.
struct Comparing<'a>(&'a Inner, usize);

impl Drop for Comparing<'_> {
    fn drop(&mut self) {
        let _ = self.0.state(|state| state.comparing -= self.1);
    }
}
