//! How the server fails: as planned, or now and then.

use std::time::Duration;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writing an object or a part of one, and completing an upload.
    Put,
    /// Reading an object.
    Get,
    /// Asking for an object.
    Head,
    /// A page of a listing.
    List,
    /// Removing an object.
    Delete,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and the answer is status 500.
    Before,
    /// It happens, and the answer is status 500.
    After,
    /// Nothing happens, and the answer is status 503: fewer requests, please.
    Throttled,
    /// Nothing happens, and the answer is status 409, as if something else were writing the object. Unless planned, only of writes.
    Conflict,
    /// Access is denied.
    Denied,
    /// The credentials have expired, which has status 400.
    Expired,
    /// The answer ends after half of its body.
    Cut,
    /// The second half of the body comes so late.
    Stalled(Duration),
    /// One bit of the body is wrong.
    Flipped,
    /// The answer comes so late.
    Late(Duration),
    /// The listing is that of an earlier moment, before the last changes.
    Stale,
}

/// How the server fails. Nothing fails at first.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Of a thousand requests, how many fail so.
    pub permille: Vec<(Fault, u64)>,
    /// Every answer comes so late.
    pub latency: Duration,
    /// Bytes that bodies have in a second, of all requests together; 0 for as many as there are.
    pub bandwidth: u64,
    /// Whether conditions of writes are ignored: objects that exist are replaced.
    pub ignores_conditions: bool,
    /// Whether listings ignore where they are to begin.
    pub ignores_start: bool,
    /// Whether no request is answered with success.
    pub is_away: bool,
    pub(crate) planned: Vec<(Operation, String, Fault)>,
    pub(crate) random: u64,
}

impl Faults {
    /// The fault of this request, if it has one.
    pub(crate) fn draw(&mut self, operation: Operation, key: &str) -> Option<Fault> {
        let planned =
            self.planned.iter().position(|(own, part, _)| *own == operation && key.contains(part.as_str()));
        if let Some(planned) = planned {
            return Some(self.planned.remove(planned).2);
        }
        if self.is_away {
            return Some(Fault::Before);
        }
        for (fault, permille) in self.permille.clone() {
            let is_possible = fault != Fault::Conflict || operation == Operation::Put;
            if self.next() % 1000 < permille && is_possible {
                return Some(fault);
            }
        }
        None
    }

    /// The next of a sequence of numbers that begins the same in each server.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
