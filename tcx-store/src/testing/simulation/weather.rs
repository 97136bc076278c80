//! What goes wrong with the storage calls of a process, and how often.

use std::io::ErrorKind;

use super::chance::Chance;
use super::folder::STALE;
use super::objects::Refusal;
use super::schedule::{self, Fault};

/// How often what goes wrong, of a thousand calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) stale: usize,
    pub(super) gap: usize,
    pub(super) lost_reply: usize,
    pub(super) refused: usize,
    pub(super) unreadable: usize,
    /// Of changes: rows before one that cannot be read are missed.
    pub(super) unreadable_change: usize,
    /// Of segments, which are read piece by piece unless it is 0: one cannot be opened, or a piece not be read.
    pub(super) unreadable_segment: usize,
    /// Of requests to an object store: something else writes the object, or access is denied.
    pub(super) conflict: usize,
    pub(super) denied: usize,
}

/// What goes wrong with a request to an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// It has no effect.
    Before(Refusal),
    /// It has its effect, and this is the answer.
    After(Refusal),
    /// The listing is that of so many events ago.
    Stale(usize),
    /// A name that was added lately by another process and begins so is missing from the listing.
    Gap(&'static str),
}

impl From<Fault> for RequestFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(ErrorKind::PermissionDenied) => Self::Before(Refusal::Denied),
            Fault::Refused(_) | Fault::Late => Self::Before(Refusal::Failed),
            Fault::LostReply => Self::After(Refusal::Lost),
            Fault::Stale(late) => Self::Stale(late),
            Fault::Gap(begin) => Self::Gap(begin),
        }
    }
}

impl Weather {
    pub(super) fn fault(&self, what: &str, file: &str, chance: &mut Chance) -> Option<Fault> {
        let writes = matches!(what, "draft" | "publish" | "create" | "remove" | "sync" | "set aside");
        let reads = matches!(what, "list" | "map") && !schedule::is_fresh();
        if matches!(what, "list" | "stamp") && !schedule::is_fresh() {
            if chance.permille(self.stale) {
                return Some(Fault::Stale(1 + chance.below(STALE)));
            }
            if chance.permille(self.gap) {
                return Some(Fault::Gap(chance.pick(&["", "change-", "seg-"])));
            }
        }
        if writes && chance.permille(self.lost_reply) {
            return Some(Fault::LostReply);
        }
        if writes && chance.permille(self.refused) {
            return Some(Fault::Refused(chance.pick(&[ErrorKind::NotFound, ErrorKind::Other])));
        }
        if what == "map" && file.starts_with("change-") && self.unreadable_change > 0 {
            return chance.permille(self.unreadable_change).then_some(Fault::Refused(ErrorKind::Other));
        }
        let reads_segment = what == "read" || what == "map" && file.starts_with("seg-");
        // Drawn only where it may happen: other runs of a seed stay as they are.
        let may_fail = reads_segment && self.unreadable_segment > 0 && !schedule::is_fresh();
        if may_fail && chance.permille(self.unreadable_segment) {
            return Some(Fault::Refused(ErrorKind::Other));
        }
        if reads && chance.permille(self.unreadable) {
            // A change that is there and cannot be read makes everything before it dead: no news, but losses.
            let is_late = what == "map" && (file.starts_with("change-") || chance.permille(500));
            return Some(if is_late { Fault::Late } else { Fault::Refused(ErrorKind::Other) });
        }
        None
    }

    /// As [`fault`](Self::fault), of a request to an object store.
    pub(super) fn of_request(&self, what: &str, chance: &mut Chance) -> Option<RequestFault> {
        let writes = matches!(what, "put" | "create" | "delete");
        if what == "list" && !schedule::is_fresh() {
            if chance.permille(self.stale) {
                return Some(RequestFault::Stale(1 + chance.below(STALE)));
            }
            if chance.permille(self.gap) {
                return Some(RequestFault::Gap(chance.pick(&["", "change-", "seg-"])));
            }
        }
        if writes && chance.permille(self.lost_reply) {
            return Some(RequestFault::After(chance.pick(&[
                Refusal::Lost,
                Refusal::Failed,
                Refusal::Denied,
            ])));
        }
        if what == "create" && chance.permille(self.conflict) {
            return Some(RequestFault::Before(Refusal::Conflict));
        }
        if chance.permille(if writes { self.refused } else { self.unreadable }) {
            return Some(RequestFault::Before(chance.pick(&[
                Refusal::Lost,
                Refusal::Failed,
                Refusal::Throttled,
            ])));
        }
        chance.permille(self.denied).then_some(RequestFault::Before(Refusal::Denied))
    }
}
