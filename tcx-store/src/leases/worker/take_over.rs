//! Taking over the ranges of workers that are gone.

use std::io;
use std::time::Instant;

use super::{CREATE, Worker};
use crate::leases::contents::{WorkerRecord, WorkerState, decode_lease};
use crate::leases::files::LeaseFiles;
use crate::leases::name::About;
use crate::sys::bytes::Random;

impl<F: LeaseFiles> Worker<F> {
    /// Takes over a range of a worker that is gone; returns it with its new generation.
    pub(super) fn take_over(&mut self, now: Instant) -> io::Result<Option<(u64, u32)>> {
        let all: Vec<(u64, u32)> =
            self.leases.iter().map(|(range, generation)| (*range, *generation)).collect();
        // Not all workers try the same first.
        let first = if all.is_empty() { 0 } else { self.random() as usize % all.len() };
        for &(range, generation) in all[first..].iter().chain(&all[..first]) {
            let owner = self.owner(range, generation, now);
            if owner == self.setup.id {
                // It was created, although the answer was an error.
                return Ok(Some((range, generation)));
            }
            if !self.is_abandoned(range, owner) {
                continue;
            }
            let next = generation.saturating_add(1);
            match self.lease(range, next) {
                Ok(true) => return Ok(Some((range, next))),
                Ok(false) => _ = self.leases.insert(range, next),
                Err(error) => return self.failed(CREATE, error, now).map(|()| None),
            }
        }
        Ok(None)
    }

    /// Whose a lease is. A damaged one is that of a worker without a record.
    fn owner(&mut self, number: u64, generation: u32, now: Instant) -> Random {
        if let Some(owner) = self.owners.get(&(number, generation)).copied() {
            self.look_for(owner, now);
            return owner;
        }
        let Ok(found) = self.files.read(&self.name(About::Range { number, generation })) else {
            // Perhaps it can be read later. If not, it is that of a worker without a record.
            let owner = nameless(number, generation);
            self.look_for(owner, now);
            return owner;
        };
        let owner = found.as_deref().and_then(decode_lease).unwrap_or_else(|| nameless(number, generation));
        self.owners.insert((number, generation), owner);
        self.look_for(owner, now);
        owner
    }

    /// A worker without a record is gone in the end, too.
    fn look_for(&mut self, owner: Random, now: Instant) {
        if !self.listed.contains(&owner) {
            self.watch.look(owner, None, now);
        }
    }

    fn is_abandoned(&self, range: u64, owner: Random) -> bool {
        let is_alive = self.watch.has_changed(owner);
        let has_left = |other: &WorkerRecord| {
            // What it finished would be covered, if it were not too long ago.
            let has_finished = || other.done.values().any(|done| done.contains(range));
            other.state == WorkerState::Left || is_alive && has_finished()
        };
        self.others.get(&owner).is_some_and(has_left) || self.watch.is_gone(owner)
    }
}

/// The worker of a lease that cannot be decoded.
fn nameless(number: u64, generation: u32) -> Random {
    let mut name = [0xff; 16];
    name[..8].copy_from_slice(&number.to_le_bytes());
    name[8..12].copy_from_slice(&generation.to_le_bytes());
    Random(name)
}
