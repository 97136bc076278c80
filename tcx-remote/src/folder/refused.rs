//! Segments that wait here, and are not of the module that the store has: an earlier try may have brought them there, or bring them still,
//! though its reply was an error. They are removed from it.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Instant, SystemTime};

use tcx_store::unstable::runtime;

use super::Inner;
use super::strays::COMES_WITHIN;
use crate::bucket::Removed;
use crate::near::lock::{Attempt, try_lock};

/// A segment that is not sent, because the store has another module, and was removed there: an earlier try may have brought it.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The history that it belongs to.
    origin: String,
    since: Instant,
    /// How often it was removed with success. The second time, no try of before can bring it any more.
    removed: u32,
}

impl Refused {
    fn is_due(&self) -> bool {
        self.removed == 0 || self.removed == 1 && runtime::now().duration_since(self.since) >= COMES_WITHIN
    }
}

impl Inner {
    /// Removes a segment that waits here from the module that has come in the place of its own: nothing was acknowledged there. It is done
    /// again once what was on its way must have come. The caller has the lock of the segment.
    pub(super) fn take_back_sent(&self, origin: &str, name: &str) {
        let due = self.state(|state| {
            let new = Refused { origin: origin.to_owned(), since: runtime::now(), removed: 0 };
            Some(state.refused.entry(name.to_owned()).or_insert(new).clone()).filter(Refused::is_due)
        });
        let Ok(Some(mut refused)) = due else { return };
        let before = self.near.removed_at(name).filter(|at| !is_over(*at));
        // Every process of the machine may send it: none does while this may come.
        if let Err(error) = self.near.note_removal(name, runtime::wall()) {
            tracing::debug!(segment = %name, "not taken back yet: {error}");
            return;
        }
        let removed = self.send(|bucket| bucket.remove(&self.key(name)));
        let is_certain = matches!(removed, Ok(Removed::ForGood));
        let noted = match before {
            None if is_certain => {
                self.near.forget_removal(name);
                Ok(())
            }
            Some(at) if is_certain => self.near.note_removal(name, at.min(runtime::wall())),
            _ => self.near.note_removal(name, runtime::wall()),
        };
        if let Err(error) = noted {
            tracing::debug!(segment = %name, "the end of its removal is not noted: {error}");
        }
        refused.removed += u32::from(removed.is_ok());
        let _ = self.state(|state| state.refused.insert(name.to_owned(), refused));
    }

    /// Removes segments again for which that is due, also those that wait here no longer.
    pub(super) fn take_back_again(&self) -> io::Result<()> {
        let due: Vec<_> = self.state(|state| {
            let due = state.refused.iter().filter(|(_, refused)| refused.is_due());
            due.map(|(name, refused)| (name.clone(), refused.origin.clone())).collect()
        })?;
        // What waits is removed when it is tried to be sent.
        let due = due.into_iter().filter(|(name, _)| self.near.find_spooled(name).is_none());
        for (name, origin) in due {
            let Attempt::Own(_alone) = try_lock(&self.lock_of(&name)?)? else { continue };
            if self.is_of(&origin)? {
                // It is sent where it belongs.
                self.state(|state| state.refused.remove(&name))?;
            } else {
                self.take_back_sent(&origin, &name);
            }
        }
        Ok(())
    }

    /// Whether segments are to be removed again that the store may have got although it has another module.
    pub(super) fn has_refused(&self) -> bool {
        self.state(|state| state.refused.values().any(|own| own.removed < 2)).unwrap_or(false)
    }

    /// Makes sure that no removal of a segment may come after it is sent. The caller has its lock.
    pub(super) fn check_removed(&self, name: &str, path: &Path) -> io::Result<()> {
        if let Some(at) = self.near.removed_at(name).filter(|at| !is_over(*at)) {
            if at > runtime::wall() {
                // A clock was set back: it is waited for from now on, and not until that time.
                self.near.note_removal(name, runtime::wall())?;
            }
            return Err(removal_under_way(path));
        }
        self.near.forget_removal(name);
        self.state(|state| state.refused.remove(name)).map(drop)
    }
}

/// Whether a removal that was begun or answered at this time has come by now.
fn is_over(removed: SystemTime) -> bool {
    // A clock that was set back says nothing.
    runtime::wall().duration_since(removed).is_ok_and(|since| since >= COMES_WITHIN)
}

fn removal_under_way(path: &Path) -> io::Error {
    let what = format!(
        "{} is not sent yet: a removal of it, from a time in which the store had another module, may still be on its way; its rows wait and \
         are sent within two minutes",
        path.display()
    );
    io::Error::new(ErrorKind::WouldBlock, what)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tcx_test_s3::Server;

    use super::super::tests::{folder, has, invalidate, key, segment, stop_senders, wait_to_send};
    use super::*;
    use crate::copy::files::change;

    #[test]
    fn a_segment_is_removed_again_though_it_waits_no_longer_and_stays_where_it_belongs() {
        for is_restored in [false, true] {
            let server = Server::start();
            invalidate(&server, 1);
            let (_tier, folder) = folder(&server, &[0, 1]);
            stop_senders(&folder);
            let waiting = wait_to_send(&folder, &segment(1));
            let before = server.object(&key(&change(1))).unwrap();
            server.remove(&key(&change(1)));
            invalidate(&server, 1);
            folder.0.wrote().unwrap();
            folder.0.settle().unwrap_err();
            // A user removes what waits, an earlier try arrives, and what was on its way has come by now.
            fs::remove_file(&waiting.path).unwrap();
            server.put(&key(&segment(1)), b"rows");
            let earlier = runtime::now().checked_sub(COMES_WITHIN).unwrap();
            folder.0.state(|state| state.refused.values_mut().for_each(|own| own.since = earlier)).unwrap();
            if is_restored {
                server.put(&key(&change(1)), &before);
            }
            folder.0.wrote().unwrap();
            let _ = folder.0.settle();
            assert_eq!(has(&server, &segment(1)), is_restored);
            assert!(!folder.0.has_refused(), "nothing is left to do");
        }
    }
}
