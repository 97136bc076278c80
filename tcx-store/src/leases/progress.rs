//! How far the jobs of a module are, read from the files of their workers: for people who watch them. Nothing is written, and no lease
//! is read, so a look costs a listing, and a read for each job and worker.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::contents::{Job, WorkerCounts, WorkerRecord, WorkerState};
use super::files::{LeaseFiles, StoredLeases};
use super::name::{About, LeaseName, Round};
use super::ranges::RangeSet;
use crate::storage::Storage;

/// The newest round of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// What its workers agree on.
    pub job: Job,
    /// The number of the round.
    pub round: u32,
    /// Whether every range is finished, and a worker has said so.
    pub has_ended: bool,
    /// How many ids there are, if a worker knows.
    pub ids: Option<u64>,
    /// How many ids the finished ranges have.
    pub finished_ids: u64,
    /// How many ranges are leased and not finished.
    pub leased: u64,
    /// Its workers, in the order of their names.
    pub workers: Vec<WorkerProgress>,
}

/// What a worker reported last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProgress {
    /// Its random name.
    pub id: String,
    /// The machine that it runs on.
    pub host: String,
    /// The number of its process there.
    pub process: u32,
    /// Whether it has left.
    pub has_left: bool,
    /// It grows with each record.
    pub counter: u64,
    /// What it did.
    pub counts: WorkerCounts,
    /// After this time without a new record, the others take it for gone.
    pub expiry: Option<Duration>,
    /// How long it had worked when it reported, by its own clock.
    pub worked: Option<Duration>,
    /// How long ago it reported, by the clock of the file system or store; `None` unless it was asked for.
    pub silent: Option<Duration>,
}

/// The newest round of each job of a module. `with_times` asks for the time of each record, too.
///
/// # Errors
///
/// Returns an error if the folder cannot be listed. A file that cannot be read, or does not verify, is left out.
pub fn jobs(module: Arc<dyn Storage>, with_times: bool) -> io::Result<Vec<JobProgress>> {
    read(&StoredLeases::new(module), with_times)
}

fn read(files: &impl LeaseFiles, with_times: bool) -> io::Result<Vec<JobProgress>> {
    let names = files.list()?;
    let mut rounds: BTreeMap<Round, Vec<About>> = BTreeMap::new();
    for LeaseName { round, about } in names.iter().filter_map(|name| LeaseName::parse(name)) {
        rounds.entry(round).or_default().push(about);
    }
    let mut newest: BTreeMap<u64, (Round, Vec<About>)> = BTreeMap::new();
    for (round, about) in rounds {
        newest.insert(round.job, (round, about));
    }
    let read = |(round, about): (Round, Vec<About>)| read_round(files, round, &about, with_times);
    let mut jobs: Vec<JobProgress> = newest.into_values().filter_map(read).collect();
    jobs.sort_by(|a, b| (&a.job.name, a.job.view).cmp(&(&b.job.name, b.job.view)));
    Ok(jobs)
}

/// `None` without the file of what the workers agree on.
fn read_round(
    files: &impl LeaseFiles,
    round: Round,
    about: &[About],
    with_times: bool,
) -> Option<JobProgress> {
    let name = |about| LeaseName { round, about }.to_string();
    let job = Job::decode(&files.read(&name(About::Job)).ok()??)?;
    let (mut workers, mut finished, mut leased, mut ids) =
        (Vec::new(), RangeSet::default(), RangeSet::default(), job.ids);
    for about in about {
        match *about {
            About::Range { number, .. } => leased.insert(number),
            About::Worker(id) => {
                let name = name(About::Worker(id));
                let found = files.read(&name).ok().flatten();
                let Some(record) = found.as_deref().and_then(WorkerRecord::decode) else { continue };
                for done in record.done.values() {
                    finished.merge(done);
                }
                ids = ids.or(record.ids);
                let silent = if with_times { files.age(&name).ok() } else { None };
                workers.push(WorkerProgress::new(id.to_string(), record, silent));
            }
            About::Job | About::End => {}
        }
    }
    let size = job.range_size.max(1);
    let ranges = ids.map_or(u64::MAX, |ids| ids.div_ceil(size));
    let whole = finished.count_below(ranges);
    // The last range may be shorter.
    let finished_ids = ids.map_or(whole.saturating_mul(size), |ids| {
        let lacks = ranges.saturating_mul(size) - ids;
        let has_last = ranges > 0 && finished.contains(ranges - 1);
        (whole * size).saturating_sub(if has_last { lacks } else { 0 })
    });
    let has_ended = about.contains(&About::End);
    leased.merge(&finished);
    let leased = leased.count_below(ranges) - whole;
    Some(JobProgress { job, round: round.number, has_ended, ids, finished_ids, leased, workers })
}

impl WorkerProgress {
    fn new(id: String, record: WorkerRecord, silent: Option<Duration>) -> Self {
        let WorkerRecord { counter, host, process, state, facts, expiry, worked, .. } = record;
        let has_left = state == WorkerState::Left;
        Self { id, host, process, has_left, counter, counts: facts, expiry, worked, silent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::contents::{encode_end, encode_lease};
    use crate::storage::MemoryStorage;
    use crate::sys::bytes::Random;

    fn put(files: &StoredLeases, round: u32, about: About, bytes: &[u8]) {
        let name = LeaseName { round: Round { job: 5, number: round }, about };
        files.replace(&name.to_string(), bytes).unwrap();
    }

    fn worker(done: &[u64], computed: u64) -> WorkerRecord {
        let mut record = WorkerRecord { host: "node1".into(), process: 7, ..WorkerRecord::default() };
        for range in done {
            record.finished(*range, 0, 1);
        }
        record.facts.computed = computed;
        record.worked = Some(Duration::from_secs(2));
        record
    }

    #[test]
    fn the_newest_round_of_a_job_is_described_without_reading_its_leases() {
        let module: Arc<dyn Storage> = Arc::new(MemoryStorage::root().child("m_v1"));
        module.make().unwrap();
        let files = StoredLeases::new(module.clone());
        assert_eq!(jobs(module.clone(), true).unwrap(), []);
        let job = Job { name: "warm".into(), view: 0, range_size: 10, ids: Some(35), first: 1 };
        put(&files, 0, About::Job, &job.encode());
        put(&files, 0, About::End, &encode_end(35));
        put(&files, 1, About::Job, &job.encode());
        let (one, two) = (Random([1; 16]), Random([2; 16]));
        put(&files, 1, About::Worker(one), &worker(&[0, 1, 3], 25).encode());
        put(&files, 1, About::Worker(two), &worker(&[], 4).encode());
        put(&files, 1, About::Worker(Random([3; 16])), b"damaged");
        for number in 0..4 {
            put(&files, 1, About::Range { number, generation: 0 }, &encode_lease(one));
        }
        let found = jobs(module.clone(), false).unwrap();
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!((only.round, only.has_ended, only.ids), (1, false, Some(35)));
        // The last range has 5 ids.
        assert_eq!((only.finished_ids, only.leased, only.workers.len()), (25, 1, 2));
        let [first, _] = &only.workers[..] else { panic!("{found:?}") };
        assert_eq!((first.counts.computed, first.worked), (25, Some(Duration::from_secs(2))));
        assert_eq!((&*first.host, first.process, first.silent), ("node1", 7, None));
        assert!(jobs(module, true).unwrap()[0].workers[0].silent.is_some());
    }
}
