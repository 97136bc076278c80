//! `tcx work`: this process as a worker of a job whose work is done by a command, such as a shell script.
//!
//! The command gets the missing ids of one work range on its standard input, and fills the cache itself, by the library. A range is
//! reported after the rows of all its ids were found: by then their segments are durable, since no other gets a name; in an object store,
//! they are sent before. So the reports are as true as those of `warm_shared`, whatever the command has done, and workers of both kinds may
//! share a job.

mod run;
mod stop;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tcx_store::unstable::{Job, JobWorker, NextRange, Sharing, WorkerFacts, most_ranges, usual_range_size};
use tcx_store::{KeyType, Keys, LookupOptions, Store};

use self::run::{Ended, Program};
use self::stop::Stop;
use crate::args::{Module, Work};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::output::{Output, Report};
use crate::failure::{Code, Failure, Result, Verdict};
use crate::formats::id_file::IdFile;
use crate::text::{human, ids};

/// Renewals and looks at other workers have to fit in.
const LEAST_EXPIRY: Duration = Duration::from_millis(100);

/// How often a worker that waits looks whether it is to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

pub(super) fn run(work: &Work, output: &Output) -> Result<Verdict> {
    let stop = Stop::on_signals()?;
    let mut ids = IdFile::open(&work.ids, work.column.as_deref())?;
    let size = work.range_size(ids.len())?;
    work.check_expiry()?;
    let program = Program::new(&work.command, output.is_json());
    let name = &work.module.module;
    let mut report = Worked { module: name.clone(), ids: ids.len(), ..Worked::default() };
    if ids.len() == 0 {
        output.show(&report)?;
        return Ok(Verdict::Good);
    }
    match open(work, &mut ids, &program, &stop)? {
        Opened::Store(store, key_type) => {
            let range = Ranges { work, store: &store, key_type, size };
            range.work(&mut ids, &program, &stop, &mut report)?;
        }
        Opened::Failed(why) => report.failure = Some(why),
    }
    report.stopped = stop.is_stopped();
    output.show(&report)?;
    if let Some(why) = report.failure.as_ref().filter(|_| !report.stopped) {
        Output::note(why);
    }
    Ok(Verdict::good_if(report.failure.is_none() && !report.stopped))
}

impl Work {
    /// As in the library, so that its workers may share the job.
    fn range_size(&self, ids: u64) -> Result<u64> {
        let size = self.range_size.unwrap_or_else(|| usual_range_size(Some(ids)));
        if size == 0 {
            return Err(Failure::usage("--range-size is 0: expected 1 or more"));
        }
        let (ranges, most) = (ids.div_ceil(size), most_ranges());
        if ranges > most {
            return Err(Failure::usage(format!(
                "--range-size is {size}, which makes {ranges} work ranges of {ids} ids: at most {most} are possible; set {} or more",
                ids.div_ceil(most)
            )));
        }
        Ok(size)
    }

    fn check_expiry(&self) -> Result<()> {
        if self.expiry >= LEAST_EXPIRY {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--expiry is {:?}: expected 100 ms or more; minutes on a network file system",
            self.expiry
        )))
    }
}

enum Opened {
    Store(Arc<Store>, KeyType),
    /// The command has not made the module.
    Failed(String),
}

/// Opens the module. One that does not exist is made by the command, which gets the first id for that: no other program knows what the
/// module is.
fn open(work: &Work, ids: &mut IdFile, program: &Program<'_>, stop: &Stop) -> Result<Opened> {
    if let Some((store, key_type)) = existing(work)? {
        return Ok(Opened::Store(store, key_type));
    }
    if let Ended::Failed(why) = program.run(None, &ids.read(0, 1)?, stop)? {
        return Ok(Opened::Failed(why));
    }
    Ok(match existing(work)? {
        Some((store, key_type)) => Opened::Store(store, key_type),
        None => Opened::Failed(format!(
            "the command ended with status 0, but there is no module `{}` in {}; it has to open the module there, and flush rows",
            work.module.module,
            work.module.dir.display()
        )),
    })
}

fn existing(work: &Work) -> Result<Option<(Arc<Store>, KeyType)>> {
    let Module { dir, module } = &work.module;
    let options = cache::options(false);
    let found = match StoreCache::at(dir)? {
        Some(place) => {
            let spec = match place.spec(module) {
                Err(failure) if failure.code == Code::NotFound => return Ok(None),
                spec => spec?,
            };
            (place.open(module, &options)?, spec.key_type())
        }
        None if !tcx_store::is_module(&dir.join(module)) => return Ok(None),
        None => (cache::open(dir, module, &options)?, cache::spec(dir, module)?.key_type()),
    };
    Ok(Some(found))
}

/// The work ranges of the ids.
struct Ranges<'a> {
    work: &'a Work,
    store: &'a Store,
    key_type: KeyType,
    size: u64,
}

impl Ranges<'_> {
    fn work(&self, ids: &mut IdFile, program: &Program<'_>, stop: &Stop, report: &mut Worked) -> Result<()> {
        let Work { view, job, expiry, .. } = self.work;
        let first = self.keys(&ids.read(0, self.size)?)?.digest_all();
        let job = Job { name: job.clone(), view: *view, range_size: self.size, ids: Some(ids.len()), first };
        let sharing = Sharing { expiry: *expiry, jumps: true, host: host() };
        let Some(worker) = self.store.join_job(&job, sharing, || stop.is_stopped())? else { return Ok(()) };
        let worker = &worker;
        thread::scope(|scope| {
            // Dropped at the end: the thread ends then.
            let (_ends, ended) = mpsc::channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(worker.renews_every()) == Err(RecvTimeoutError::Timeout) {
                    worker.renew();
                }
            });
            let done = self.share(worker, ids, program, stop, report);
            report.workers = worker.workers().into_iter().map(Worker::of).collect();
            done
        })
    }

    /// Works on ranges until all are finished.
    fn share(
        &self,
        worker: &JobWorker,
        ids: &mut IdFile,
        program: &Program<'_>,
        stop: &Stop,
        report: &mut Worked,
    ) -> Result<()> {
        while !stop.is_stopped() {
            let next = worker.next()?;
            self.compare(worker, ids)?;
            match next {
                NextRange::Finished => return Ok(()),
                NextRange::Wait(pause) => wait(pause, stop),
                NextRange::Compute { range, is_taken_over } => {
                    if is_taken_over {
                        self.store.refresh()?;
                    }
                    let own = ids.read(range.saturating_mul(self.size), self.size)?;
                    report.failure = self.fill(worker, range, &own, program, stop, report)?;
                    if report.failure.is_some() {
                        worker.give_up(range);
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Has the command compute what is missing of a range. Returns why it is not finished.
    fn fill(
        &self,
        worker: &JobWorker,
        range: u64,
        own: &[String],
        program: &Program<'_>,
        stop: &Stop,
        report: &mut Worked,
    ) -> Result<Option<String>> {
        let missing = self.missing(own)?;
        let count = missing.len() as u64;
        if !missing.is_empty() {
            report.runs += 1;
            if let Ended::Failed(why) = program.run(Some(range), &missing, stop)? {
                return Ok(Some(why));
            }
            self.store.refresh()?;
            let left = self.missing(own)?;
            if let [first, ..] = &left[..] {
                return Ok(Some(format!(
                    "the command ended with status 0 in work range {range}, but {} of its {} have no row, the first is {first:?}; it has to \
                     compute every id on its standard input, and flush",
                    human::count(left.len() as u64),
                    human::counted(count, "id")
                )));
            }
        }
        // What was found may wait on this machine to be sent to the store of the cache.
        if let Err(error) = self.store.flush() {
            return Ok(Some(format!(
                "the rows of work range {range} are not all durable in {}: {error}",
                self.work.module.dir.display()
            )));
        }
        // A file that the store refuses is an error of the process that wrote it, which has ended.
        let waiting = self.store.stats().traffic.waiting_files;
        if waiting > 0 {
            return Ok(Some(format!(
                "the rows of work range {range} may not be in {}: {waiting} files wait on this machine and cannot be sent; run the command again",
                self.work.module.dir.display()
            )));
        }
        let digest = self.keys(own)?.digest_all();
        worker.count(count, (own.len() as u64).saturating_sub(count));
        worker.finished(&[(range, digest)]);
        Ok(None)
    }

    fn keys(&self, own: &[String]) -> Result<Keys> {
        let keys = own.iter().map(|id| ids::parse(self.key_type, id)).collect::<Result<Vec<_>>>()?;
        ids::keys(self.key_type, &keys, self.work.view)
    }

    /// The ids without a row, each once.
    fn missing(&self, own: &[String]) -> Result<Vec<String>> {
        let found = self.store.lookup_with(self.keys(own)?, LookupOptions::uncounted())?;
        Ok(found.distinct_missing_positions().into_iter().map(|position| own[position].clone()).collect())
    }

    /// Compares the ids that other workers reported with those of this one.
    fn compare(&self, worker: &JobWorker, ids: &mut IdFile) -> Result<()> {
        while let Some(comparison) = worker.comparison() {
            let own = ids.read(comparison.range.saturating_mul(self.size), self.size)?;
            if self.keys(&own)?.digest_all() != comparison.digest {
                return Err(worker.differs(&comparison).into());
            }
        }
        Ok(())
    }
}

/// The name of this machine.
#[cfg(unix)]
fn host() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

fn wait(pause: Duration, stop: &Stop) {
    let end = Instant::now() + pause;
    while Instant::now() < end && !stop.is_stopped() {
        thread::sleep(LOOKS_EVERY.min(pause));
    }
}

/// What this worker and the others have done.
#[derive(Debug, Default, Serialize)]
struct Worked {
    module: String,
    ids: u64,
    /// How often the command ran for a work range.
    runs: u64,
    stopped: bool,
    /// Why this worker has ended before the job.
    failure: Option<String>,
    /// What the workers reported last, this one first.
    workers: Vec<Worker>,
}

#[derive(Debug, Serialize)]
struct Worker {
    host: String,
    process: u32,
    computed: u64,
    found: u64,
    ranges: u64,
    taken_over: u64,
}

impl Worker {
    fn of(facts: WorkerFacts) -> Self {
        let WorkerFacts { host, process, counts, .. } = facts;
        let (computed, found) = (counts.computed, counts.found);
        Self { host, process, computed, found, ranges: counts.ranges, taken_over: counts.taken_over }
    }
}

impl Report for Worked {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { module, ids, runs, stopped, failure, workers } = self;
        let (ids, runs) = (human::counted(*ids, "id"), human::counted(*runs, "run"));
        let end = if *stopped || failure.is_some() {
            format!("stopped before all {ids} had rows")
        } else {
            format!("all {ids} have rows")
        };
        writeln!(to, "{module}: {end}, after {runs} of the command here")?;
        for Worker { host, process, computed, found, ranges, taken_over } in workers {
            let [computed, found, ranges] = [computed, found, ranges].map(|number| human::count(*number));
            write!(
                to,
                "{host}, process {process}: {computed} computed, {found} found, {ranges} work ranges"
            )?;
            if *taken_over > 0 {
                write!(to, ", {taken_over} of them taken over")?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}
