//! A claim: of many processes on any number of machines, one at a time does what others would do as well.
//!
//! As a lease, a claim is advisory and expires. The process that has created the file of the newest generation has it. Done, it writes into
//! that file that the claim is free. A process that finds a claim that is free, or of a process that is [gone](super::watch), creates the
//! file of the next generation, which at most one can do. Whatever becomes of these files, what is done twice is right.

use std::io;
use std::time::{Duration, Instant};

use super::contents::ClaimRecord;
use super::files::LeaseFiles;
use super::watch::Watch;
use crate::sys::bytes::Random;
use crate::sys::checksum::checksum;

/// A claim that was not renewed for this time has expired.
const EXPIRES: Duration = Duration::from_mins(5);

/// The claim of another process is looked at so often.
const LOOKS_EVERY: Duration = Duration::from_secs(30);

const PREFIX: &str = "claim-";

#[derive(Debug)]
pub(crate) struct Claim<F> {
    files: F,
    /// Who claims.
    own: Random,
    /// The newest generation that is known, if this process has created it, and how often it has written its file.
    held: Option<Held>,
    watch: Watch,
    /// When another process was found to have it. It is not looked at again at once: each look is two requests.
    refused: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    generation: u32,
    written: u64,
    is_free: bool,
}

impl<F: LeaseFiles> Claim<F> {
    pub(crate) fn new(files: F) -> Self {
        Self { files, own: Random::new(), held: None, watch: Watch::new(EXPIRES), refused: None }
    }

    /// Claims, or renews the claim; `false` if another process has it.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be read or written: then it is not known who has it.
    pub(crate) fn take(&mut self, now: Instant) -> io::Result<bool> {
        if let Some(held) = self.held {
            if !held.is_free {
                let held = Held { written: held.written + 1, ..held };
                self.write(held)?;
                self.held = Some(held);
                return Ok(true);
            }
            // Most of the time no other process has claimed since.
            if self.create(held.generation.saturating_add(1))? {
                return Ok(true);
            }
            self.held = None;
        }
        if self.refused.is_some_and(|refused| now.saturating_duration_since(refused) < LOOKS_EVERY) {
            return Ok(false);
        }
        let generations = self.generations()?;
        let Some(&newest) = generations.iter().max() else { return self.create(0) };
        if !self.is_over(newest, now)? || !self.create(newest.saturating_add(1))? {
            self.refused = Some(now);
            return Ok(false);
        }
        for older in generations {
            // One that stays decides nothing.
            let _ = self.files.remove(&name(older));
        }
        Ok(true)
    }

    /// Lets go of the claim, if this process has it. Others wait for it to expire if that fails.
    pub(crate) fn release(&mut self) {
        if let Some(held) = self.held.filter(|held| !held.is_free) {
            let free = Held { written: held.written + 1, is_free: true, ..held };
            self.held = self.write(free).is_ok().then_some(free);
        }
    }

    fn generations(&self) -> io::Result<Vec<u32>> {
        let names = self.files.list()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    /// Whether the claim of this generation is free, or that of a process that is gone.
    fn is_over(&mut self, generation: u32, now: Instant) -> io::Result<bool> {
        let Some(found) = self.files.read(&name(generation))? else {
            // Another process has claimed in this moment.
            return Ok(false);
        };
        if ClaimRecord::decode(&found).is_some_and(|record| record.is_free) {
            return Ok(true);
        }
        // A file that says nothing does not change either.
        let mut watched = Random([0; 16]);
        watched.0[..4].copy_from_slice(&generation.to_le_bytes());
        self.watch.look(watched, Some(checksum(&found)), now);
        Ok(self.watch.is_gone(watched))
    }

    /// Creates the file of a generation; whether it is this process's now.
    fn create(&mut self, generation: u32) -> io::Result<bool> {
        let held = Held { generation, written: 0, is_free: false };
        let (name, bytes) = (name(generation), self.record(held));
        let created = self.files.create(&name, &bytes).or_else(|error| match self.files.read(&name) {
            // It was created, although the answer was an error.
            Ok(Some(found)) if found == bytes => Ok(true),
            _ => Err(error),
        })?;
        if created {
            let before = self.held.replace(held);
            if let Some(before) = before {
                let _ = self.files.remove(&self::name(before.generation));
            }
        }
        Ok(created)
    }

    fn write(&self, held: Held) -> io::Result<()> {
        self.files.replace(&name(held.generation), &self.record(held))
    }

    fn record(&self, Held { written, is_free, .. }: Held) -> Vec<u8> {
        ClaimRecord { holder: self.own, counter: written, is_free }.encode()
    }
}

fn name(generation: u32) -> String {
    format!("{PREFIX}{generation:010}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::leases::files::StoredLeases;
    use crate::storage::{MemoryStorage, Storage};

    fn module() -> Arc<dyn Storage> {
        let module = MemoryStorage::root().child("m_v1");
        module.make().unwrap();
        Arc::new(module)
    }

    fn claim(module: &Arc<dyn Storage>) -> Claim<StoredLeases> {
        Claim::new(StoredLeases::new(module.clone()))
    }

    fn files(module: &Arc<dyn Storage>) -> Vec<String> {
        module.existing_folder("leases").unwrap().list().unwrap()
    }

    #[test]
    fn one_process_has_a_claim_until_it_lets_go_of_it() {
        let (module, now) = (module(), Instant::now());
        let (mut one, mut other) = (claim(&module), claim(&module));
        assert!(one.take(now).unwrap() && !other.take(now).unwrap());
        assert!(one.take(now).unwrap(), "it is renewed");
        one.release();
        let now = now + LOOKS_EVERY;
        assert!(other.take(now).unwrap() && !one.take(now).unwrap());
        other.release();
        assert!(other.take(now).unwrap(), "no other process has claimed since");
        assert_eq!(files(&module).len(), 1, "{:?}", files(&module));
    }

    #[test]
    fn the_claim_of_a_process_that_is_gone_expires_and_a_renewed_one_does_not() {
        let (module, start) = (module(), Instant::now());
        let (mut one, mut other) = (claim(&module), claim(&module));
        assert!(one.take(start).unwrap());
        let minute = Duration::from_mins(1);
        for minutes in 0..9_u32 {
            let now = start + minute * minutes;
            assert!(!other.take(now).unwrap(), "after {minutes} minutes");
            if minutes < 4 {
                assert!(one.take(now).unwrap());
            }
        }
        assert!(other.take(start + minute * 9).unwrap());
        // It may have slept, and does not know: both do the work now, which is right.
        assert!(one.take(start + minute * 9).unwrap());
    }

    #[test]
    fn a_file_that_says_nothing_is_a_claim_that_expires() {
        let (module, start) = (module(), Instant::now());
        let mut draft = module.folder("leases").unwrap().draft().unwrap();
        draft.write_all(b"damaged").unwrap();
        draft.publish(&name(7), true).unwrap();
        let mut one = claim(&module);
        let minute = Duration::from_mins(1);
        assert!((0..5_u32).all(|minutes| !one.take(start + minute * minutes).unwrap()));
        assert!(one.take(start + minute * 5).unwrap());
        assert_eq!(files(&module), [name(8)]);
    }
}
