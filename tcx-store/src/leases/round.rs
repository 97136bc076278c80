//! Which round of a job a worker joins.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::contents::{Job, WorkerRecord, WorkerState, shortened};
use super::files::LeaseFiles;
use super::name::{About, LeaseName, Round};
use super::watch::Watch;
use crate::sys::bytes::Random;
use crate::sys::checksum::checksum;

/// What came of an attempt to join.
#[derive(Debug)]
pub(crate) enum Joined {
    Round(Round),
    /// Workers of a round with other ids may still be alive: look again after this time.
    Wait(Duration),
    /// They are alive: the two sides differ.
    Refused(Job),
}

/// A worker that looks for the round to join.
pub(crate) struct Joining {
    job: Job,
    hash: u64,
    watch: Watch,
    /// The round whose workers are watched.
    watched: Option<Round>,
}

impl Joining {
    pub(crate) fn new(job: Job, expiry: Duration) -> Self {
        // The name as it is in files, so that names that differ there have different hashes.
        let hash = xxh3_64_with_seed(shortened(&job.name).as_bytes(), u64::from(job.view));
        Self { job, hash, watch: Watch::new(expiry), watched: None }
    }

    /// The newest round that has not ended, or the next one. All workers of a round have the same [`Job`]: a round of another one is
    /// left if its workers are gone, and refuses this one otherwise.
    pub(crate) fn join(&mut self, files: &impl LeaseFiles, now: Instant) -> io::Result<Joined> {
        let names = files.list()?;
        let names = names.iter().filter_map(|name| LeaseName::parse(name));
        let mut rounds: BTreeMap<u32, Vec<About>> = BTreeMap::new();
        for LeaseName { round, about } in names.filter(|name| name.round.job == self.hash) {
            rounds.entry(round.number).or_default().push(about);
        }
        let mut number = match rounds.last_key_value() {
            Some((&number, about)) if about.contains(&About::End) => number.saturating_add(1),
            Some((&number, _)) => number,
            None => 0,
        };
        loop {
            let round = Round { job: self.hash, number };
            let Some(other) = self.agree(files, round)? else { return Ok(Joined::Round(round)) };
            let about = rounds.get(&number).map(Vec::as_slice).unwrap_or_default();
            match self.others(files, round, about, now) {
                Others::Gone => number = number.saturating_add(1),
                Others::Alive => return Ok(Joined::Refused(other)),
                Others::Unknown => return Ok(Joined::Wait(self.watch.pause())),
            }
        }
    }

    /// Agrees with the other workers of the round on the job; returns theirs if it is another.
    fn agree(&self, files: &impl LeaseFiles, round: Round) -> io::Result<Option<Job>> {
        let (name, bytes) = (LeaseName { round, about: About::Job }.to_string(), self.job.encode());
        // Whatever the answer is, the file decides.
        let created = files.create(&name, &bytes);
        match files.read(&name)? {
            Some(found) if found == bytes => Ok(None),
            Some(found) => match Job::decode(&found) {
                Some(other) => Ok(Some(other).filter(|other| *other != self.job)),
                // A damaged file says nothing.
                None => files.replace(&name, &bytes).map(|()| None),
            },
            None => created.and(Err(io::ErrorKind::NotFound.into())),
        }
    }

    /// Whether the workers of a round are alive.
    fn others(&mut self, files: &impl LeaseFiles, round: Round, about: &[About], now: Instant) -> Others {
        if self.watched.replace(round) != Some(round) {
            let expiry = self.watch.expiry();
            self.watch = Watch::new(expiry);
        }
        // One that has joined may not have a record yet.
        let absent = Random([0; 16]);
        self.watch.look(absent, None, now);
        let (mut left, mut silent) = (0, 0);
        let workers =
            about.iter().filter_map(|about| if let About::Worker(id) = about { Some(*id) } else { None });
        let workers: Vec<Random> = workers.collect();
        for &worker in &workers {
            match files.read(&LeaseName { round, about: About::Worker(worker) }.to_string()) {
                Ok(found) => self.look(worker, found.as_deref(), now, &mut left),
                Err(_) => self.watch.look_failed(worker, now),
            }
            silent += usize::from(self.watch.is_gone(worker));
        }
        if workers.iter().any(|worker| self.watch.has_changed(*worker)) {
            return Others::Alive;
        }
        let has_left = !workers.is_empty() && left == workers.len();
        let is_gone = silent == workers.len() && self.watch.is_gone(absent);
        if has_left || is_gone { Others::Gone } else { Others::Unknown }
    }

    fn look(&mut self, worker: Random, found: Option<&[u8]>, now: Instant, left: &mut usize) {
        let record = found.and_then(WorkerRecord::decode);
        if record.is_some_and(|record| record.state == WorkerState::Left) {
            *left += 1;
        }
        self.watch.look(worker, found.map(checksum), now);
    }
}

enum Others {
    Gone,
    Alive,
    Unknown,
}
