//! `tcx jobs`: how far the processes are that fill modules together, refreshed until the user stops it or all jobs have ended.
//!
//! It reads the records that workers keep for one another. A worker is silent if its record is older than it should be, and gone if the
//! others take it for gone. The first look asks the file system or the store how old the records are. From then on, this process
//! measures that itself, as workers do.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use tcx_store::Prices;
use tcx_store::unstable::{JobProgress, WorkerCounts, WorkerProgress};

use crate::cache::jobs::Jobs;
use crate::console::output::{BAD, Output, Report, Table};
use crate::failure::{Result, Verdict};
use crate::text::human;

/// Moves to the upper left corner and clears the screen.
const REDRAW: &str = "\x1b[H\x1b[J";
/// The number of workers in the text output.
const SHOWN: usize = 40;
/// Rates are those of this time.
const WINDOW: Duration = Duration::from_mins(1);
/// Of a worker whose record has no expiry time.
const EXPIRY: Duration = Duration::from_mins(2);

pub(super) fn run(
    (place, module): (&Path, Option<&str>),
    every: Duration,
    prices: Option<Prices>,
    output: &Output,
) -> Result<Verdict> {
    let jobs = Jobs::of(place, module)?;
    let mut watch = Watch { prices, workers: BTreeMap::new() };
    let mut found = watch.look(jobs.read(true)?, Instant::now());
    if output.is_json() || !io::stdout().is_terminal() {
        output.show(&found)?;
        return Ok(Verdict::Good);
    }
    // Until the user presses Ctrl-C.
    loop {
        print!("{REDRAW}");
        output.show(&found)?;
        if found.jobs.iter().all(|job| job.ended) {
            return Ok(Verdict::Good);
        }
        sleep(every.max(Duration::from_millis(100)));
        found = watch.look(jobs.read(false)?, Instant::now());
    }
}

#[derive(Debug, Serialize)]
struct Found {
    jobs: Vec<Job>,
}

#[derive(Debug, Serialize)]
struct Job {
    module: String,
    job: String,
    view: u32,
    round: u32,
    ended: bool,
    /// How many ids there are, and how many of them are in finished work ranges.
    ids: Option<u64>,
    finished: u64,
    range_size: u64,
    leased_ranges: u64,
    rows_per_second: f64,
    seconds_left: Option<f64>,
    #[serde(flatten)]
    total: Counts,
    /// Of the requests, if the user has named prices.
    price: Option<f64>,
    workers: Vec<Worker>,
}

#[derive(Debug, Serialize)]
struct Worker {
    worker: String,
    host: String,
    process: u32,
    state: State,
    silent_ms: Option<u64>,
    worked_ms: Option<u64>,
    rows_per_second: f64,
    ranges: u64,
    taken_over: u64,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Gone,
    Silent,
    Working,
    Left,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    computed: u64,
    found: u64,
    puts_and_lists: u64,
    gets: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

impl Counts {
    fn of(counts: &WorkerCounts) -> Self {
        let WorkerCounts { computed, found, puts_and_lists, gets, bytes_sent, bytes_received, .. } = *counts;
        Self { computed, found, puts_and_lists, gets, bytes_sent, bytes_received }
    }

    fn and(self, other: Self) -> Self {
        Self {
            computed: self.computed + other.computed,
            found: self.found + other.found,
            puts_and_lists: self.puts_and_lists + other.puts_and_lists,
            gets: self.gets + other.gets,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
        }
    }
}

/// What was seen of the workers so far, by their random names.
struct Watch {
    prices: Option<Prices>,
    workers: BTreeMap<String, Seen>,
}

/// What was seen of a worker.
struct Seen {
    counter: u64,
    /// When its record was first seen, and how old it was then.
    at: Instant,
    age: Option<Duration>,
    /// How long it had worked, and how many samples it had handled then, for some records of the last minute.
    history: VecDeque<(Duration, u64)>,
}

impl Watch {
    fn look(&mut self, found: Vec<(String, JobProgress)>, now: Instant) -> Found {
        Found { jobs: found.into_iter().map(|(module, job)| self.job(module, job, now)).collect() }
    }

    fn job(&mut self, module: String, progress: JobProgress, now: Instant) -> Job {
        let JobProgress { job, round, has_ended, ids, finished_ids, leased, workers } = progress;
        let mut workers: Vec<Worker> = workers.into_iter().map(|own| self.worker(own, now)).collect();
        // Those to look after first, then the slowest.
        workers.sort_by(|a, b| (a.state.cmp(&b.state)).then(a.rows_per_second.total_cmp(&b.rows_per_second)));
        let at_work = workers.iter().filter(|own| own.state == State::Working);
        let rate = at_work.fold(0.0, |sum, own| sum + own.rows_per_second);
        let left = ids.map(|ids| ids.saturating_sub(finished_ids) as f64 / rate);
        let total = workers.iter().fold(Counts::default(), |sum, own| sum.and(own.counts));
        let price = self.prices.map(|prices| prices.of(total.puts_and_lists, total.gets));
        Job {
            module,
            job: job.name,
            view: job.view,
            round,
            ended: has_ended,
            ids,
            finished: finished_ids,
            range_size: job.range_size,
            leased_ranges: leased,
            rows_per_second: rate,
            seconds_left: left.filter(|left| left.is_finite() && !has_ended),
            total,
            price,
            workers,
        }
    }

    fn worker(&mut self, found: WorkerProgress, now: Instant) -> Worker {
        let WorkerProgress { id, host, process, has_left, counter, counts, expiry, worked, silent } = found;
        let new = Seen { counter, at: now, age: silent, history: VecDeque::new() };
        let seen = self.workers.entry(id.clone()).or_insert(new);
        if seen.counter != counter {
            (seen.counter, seen.at, seen.age) = (counter, now, Some(Duration::ZERO));
        }
        seen.note(worked.unwrap_or_default(), counts.computed + counts.found);
        let silent = seen.age.map(|age| age + (now - seen.at));
        let expiry = expiry.unwrap_or(EXPIRY);
        let state = match silent {
            _ if has_left => State::Left,
            Some(silent) if silent >= expiry => State::Gone,
            // Records are written eight times in this time.
            Some(silent) if silent >= expiry / 4 => State::Silent,
            _ => State::Working,
        };
        Worker {
            worker: id,
            host,
            process,
            state,
            silent_ms: silent.map(|silent| silent.as_millis() as u64),
            worked_ms: worked.map(|worked| worked.as_millis() as u64),
            rows_per_second: seen.rate(),
            ranges: counts.ranges,
            taken_over: counts.taken_over,
            counts: Counts::of(&counts),
        }
    }
}

impl Seen {
    fn note(&mut self, worked: Duration, samples: u64) {
        if self.history.back() != Some(&(worked, samples)) {
            self.history.push_back((worked, samples));
        }
        let is_old =
            |at: Option<&(Duration, u64)>| at.is_some_and(|(then, _)| worked.saturating_sub(*then) > WINDOW);
        // One record before the last minute begins it.
        while is_old(self.history.get(1)) {
            self.history.pop_front();
        }
    }

    /// Samples a second of the worker's own time: in the last minute, or since it began if only one record was seen.
    fn rate(&self) -> f64 {
        let last = self.history.back().copied().unwrap_or_default();
        let first = self.history.front().copied().filter(|first| first.0 < last.0).unwrap_or_default();
        let seconds = last.0.saturating_sub(first.0).as_secs_f64();
        if seconds > 0.0 { last.1.saturating_sub(first.1) as f64 / seconds } else { 0.0 }
    }
}

impl Report for Found {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.jobs.is_empty() {
            return writeln!(to, "no jobs: within a week, no process has called `warm_shared` or `tcx work`");
        }
        for (number, job) in self.jobs.iter().enumerate() {
            if number > 0 {
                writeln!(to)?;
            }
            job.text(to)?;
        }
        Ok(())
    }
}

impl Job {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "{}", self.line())?;
        let mut table =
            Table::new(&["WORKER", ">COMPUTED", ">FOUND", ">ROWS/S", ">RANGES", ">TAKEN OVER", "STATE"]);
        for own in self.workers.iter().take(SHOWN) {
            table.line([
                format!("{}, process {}", own.host, own.process),
                human::count(own.counts.computed),
                human::count(own.counts.found),
                human::count(own.rows_per_second.round() as u64),
                human::count(own.ranges),
                human::count(own.taken_over),
                own.state(),
            ]);
        }
        table.write(to)?;
        if let Some(more) = self.workers.len().checked_sub(SHOWN + 1) {
            writeln!(to, "and {} more (--json lists them all)", human::count(more as u64 + 1))?;
        }
        self.requests(to)
    }

    /// `clip_v1, job warm: 120 of 2,000 rows (6.0 %), 812 rows/s, 23s left, 3 workers`.
    fn line(&self) -> String {
        let Self { module, job, view, .. } = self;
        let view = if *view > 0 { format!(" of view {view}") } else { String::new() };
        let mut parts = vec![format!("{module}, job {job}{view}: {}", self.finished_of_all())];
        if self.ended {
            parts.push("ended".to_owned());
        } else {
            parts.push(format!("{} rows/s", human::count(self.rows_per_second.round() as u64)));
            let left = self.seconds_left.and_then(|left| Duration::try_from_secs_f64(left).ok());
            parts.extend(left.map(|left| format!("{} left", human::duration(left))));
        }
        parts.push(human::counted(self.workers.len() as u64, "worker"));
        let count = |state| self.workers.iter().filter(|own| own.state == state).count() as u64;
        let states = [(State::Gone, "gone"), (State::Silent, "silent"), (State::Left, "left")];
        let some = states.into_iter().filter(|(state, _)| count(*state) > 0);
        parts.extend(some.map(|(state, name)| format!("{} {name}", human::count(count(state)))));
        parts.join(", ")
    }

    fn finished_of_all(&self) -> String {
        let finished = human::count(self.finished);
        let Some(ids) = self.ids else { return format!("{finished} rows") };
        // Rounded down, so that 100 % means all of them.
        let thousandths = (u128::from(self.finished) * 1000).checked_div(u128::from(ids)).unwrap_or(1000);
        let (percent, tenth) = (thousandths / 10, thousandths % 10);
        format!("{finished} of {} rows ({percent}.{tenth} %)", human::count(ids))
    }

    fn requests(&self, to: &mut dyn Write) -> io::Result<()> {
        let Counts { puts_and_lists, gets, bytes_sent, bytes_received, .. } = self.total;
        if puts_and_lists + gets == 0 {
            return Ok(());
        }
        let [puts, gets] = [puts_and_lists, gets].map(human::count);
        let [sent, received] = [bytes_sent, bytes_received].map(human::size);
        write!(to, "{puts} PUT or LIST requests and {gets} others, {sent} sent, {received} received")?;
        match self.price {
            Some(price) => writeln!(to, ": {price:.4}"),
            None => writeln!(to),
        }
    }
}

impl Worker {
    fn state(&self) -> String {
        let silent = human::duration(Duration::from_millis(self.silent_ms.unwrap_or_default()));
        match self.state {
            State::Working => "works".to_owned(),
            State::Left => "has left".to_owned(),
            State::Silent => format!("silent for {silent}"),
            State::Gone => format!("{BAD}gone{BAD:#} for {silent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tcx_store::unstable::Job as Agreed;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn worker(id: &str, counter: u64, worked: u32, computed: u64) -> WorkerProgress {
        WorkerProgress {
            id: id.to_owned(),
            host: "node1".to_owned(),
            process: 7,
            has_left: false,
            counter,
            counts: WorkerCounts { computed, puts_and_lists: 1000, gets: 2000, ..WorkerCounts::default() },
            expiry: Some(SECOND * 8),
            worked: Some(SECOND * worked),
            silent: (counter == 1).then_some(Duration::ZERO),
        }
    }

    fn look(watch: &mut Watch, workers: Vec<WorkerProgress>, at: Instant) -> Job {
        let job = Agreed { name: "warm".into(), view: 0, range_size: 10, ids: Some(1000), first: 1 };
        let finished_ids = workers.iter().map(|own| own.counts.computed).sum();
        let progress = JobProgress {
            job,
            round: 0,
            has_ended: false,
            ids: Some(1000),
            finished_ids,
            leased: 2,
            workers,
        };
        watch.look(vec![("m_v1".to_owned(), progress)], at).jobs.remove(0)
    }

    #[test]
    fn a_worker_that_reports_no_longer_is_silent_then_gone_and_does_not_count_for_the_time_that_is_left() {
        let mut watch =
            Watch { prices: Some(Prices { puts_and_lists: 0.005, gets: 0.0004 }), workers: BTreeMap::new() };
        let start = Instant::now();
        let job = look(&mut watch, vec![worker("a", 1, 10, 100), worker("b", 1, 10, 100)], start);
        assert_eq!((job.rows_per_second, job.seconds_left), (20.0, Some(40.0)));
        assert_eq!(job.price.map(|price| (price * 1e6).round() as u64), Some(11_600));
        // One of them is twice as fast from now on, the other one has died.
        let job =
            look(&mut watch, vec![worker("a", 2, 20, 300), worker("b", 1, 10, 100)], start + SECOND * 3);
        let states: Vec<State> = job.workers.iter().map(|own| own.state).collect();
        assert_eq!(states, [State::Silent, State::Working]);
        assert_eq!((job.rows_per_second, job.seconds_left), (20.0, Some(30.0)));
        let job =
            look(&mut watch, vec![worker("a", 3, 30, 500), worker("b", 1, 10, 100)], start + SECOND * 9);
        assert_eq!(job.workers[0].state, State::Gone);
        assert_eq!(
            job.line(),
            "m_v1, job warm: 600 of 1,000 rows (60.0 %), 20 rows/s, 20s left, 2 workers, 1 gone"
        );
    }
}
