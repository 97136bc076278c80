//! A worker of a job: this process, while it shares a list of ids with others.

use std::path::PathBuf;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;
use tcx_store::unstable::{self, Comparison, Job, JobProgress, NextRange, Sharing};

use crate::interop::error::{OrRaise, of_kind};
use crate::interop::notices;
use crate::store::Store;
use crate::store::object_store::ObjectStore;

/// The name, the view, how many ids a range has, how many ids there are, and the digest of those of the first range.
type OfJob = (String, u32, u64, Option<u64>, u64);
/// The host and process of a worker; what it computed, found, finished and took over.
type OfWorker = (String, u32, u64, u64, u64, u64);

/// This process as a worker of a job. A thread renews its leases, without the GIL, until it leaves.
#[pyclass(frozen, module = "tcx_cache._native")]
pub(crate) struct JobWorker {
    joined: ArcSwapOption<Joined>,
    /// The process that has joined: a child of `fork` is no worker, and touches nothing of its parent's.
    process: u32,
}

struct Joined {
    // Dropped first: the thread has the worker, too.
    _renewing: Renewing,
    worker: Arc<unstable::JobWorker>,
}

/// A thread that ends, and is waited for, when this is dropped.
struct Renewing {
    ends: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewing {
    fn start(worker: Arc<unstable::JobWorker>) -> std::io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let renew = move || {
            while ended.recv_timeout(worker.renews_every()) == Err(RecvTimeoutError::Timeout) {
                worker.renew();
            }
        };
        let thread = thread::Builder::new().name("tcx-leases".to_owned()).spawn(renew)?;
        Ok(Self { ends: Some(ends), thread: Some(thread) })
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is known of a worker: its host and process; whether it has left; after how many seconds it is taken for gone, how many it has worked,
/// and how many ago it reported; what it computed and found.
type OfWatched = (String, u32, bool, Option<f64>, Option<f64>, Option<f64>, u64, u64);
/// The name, view and round of a job; whether it has ended; how many ids there are, and how many are finished; its workers.
type OfProgress = (String, u32, u32, bool, Option<u64>, u64, Vec<OfWatched>);

/// How far the jobs of a module are, in a directory or in an object store.
#[pyfunction]
pub(crate) fn jobs(py: Python<'_>, place: Watched<'_>, module: &str) -> PyResult<Vec<OfProgress>> {
    let found = match &place {
        Watched::Store(store) => {
            let cache = store.get();
            py.detach(|| cache.jobs(module, true))
        }
        Watched::Directory(dir) => {
            let module = unstable::directory(dir.join(module));
            py.detach(|| unstable::jobs(module, true))
        }
    };
    let found =
        found.map_err(|error| of_kind("Io", &format!("cannot read the jobs of `{module}`: {error}")))?;
    Ok(found.into_iter().map(of_progress).collect())
}

/// Where jobs are.
#[derive(FromPyObject)]
pub(crate) enum Watched<'py> {
    Store(PyRef<'py, ObjectStore>),
    Directory(PathBuf),
}

fn of_progress(progress: JobProgress) -> OfProgress {
    let JobProgress { job, round, has_ended, ids, finished_ids, workers, .. } = progress;
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let workers = workers.into_iter().map(|own| {
        let counts = own.counts;
        let (expiry, worked, silent) = (seconds(own.expiry), seconds(own.worked), seconds(own.silent));
        (own.host, own.process, own.has_left, expiry, worked, silent, counts.computed, counts.found)
    });
    (job.name, job.view, round, has_ended, ids, finished_ids, workers.collect())
}

/// What a worker does next.
#[derive(IntoPyObject)]
enum Next {
    /// The number of a range, and whether it was another worker's.
    Compute(u64, bool),
    /// A number of seconds.
    Wait(f64),
}

impl JobWorker {
    /// Runs without the GIL: the thread that renews may be waiting for the disk.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&unstable::JobWorker) -> tcx_store::Result<T> + Send,
    ) -> PyResult<T> {
        let joined = self.joined.load_full().filter(|_| process::id() == self.process);
        let joined = joined.ok_or_else(|| of_kind("Closed", "this worker has left its job"))?;
        let ran = py.detach(move || {
            let ran = run(&joined.worker);
            drop(joined);
            ran
        });
        notices::report(py);
        ran.or_raise()
    }

    fn take(&self) -> Option<Arc<Joined>> {
        let joined = self.joined.swap(None);
        if process::id() == self.process {
            return joined;
        }
        // Its thread is not in this process, and may have held its locks at the fork.
        std::mem::forget(joined);
        None
    }
}

#[pymethods]
impl JobWorker {
    /// Joins the workers of a job. Asks now and then whether it is to stop before it has joined: then it `has_left`.
    #[new]
    #[pyo3(signature = (store, job, expiry, jumps, is_stopped=None))]
    fn new(
        py: Python<'_>,
        store: &Store,
        job: OfJob,
        expiry: f64,
        jumps: bool,
        is_stopped: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let (name, view, range_size, ids, first) = job;
        let job = Job { name, view, range_size, ids, first };
        let sharing =
            Sharing { expiry: Duration::try_from_secs_f64(expiry).unwrap_or_default(), jumps, host: None };
        let raised = Mutex::new(None);
        let stops = || {
            let asked = Python::attach(|py| {
                // Ctrl-C.
                py.check_signals()?;
                is_stopped.as_ref().map_or(Ok(false), |own| own.bind(py).call0()?.is_truthy())
            });
            asked.unwrap_or_else(|error| {
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                true
            })
        };
        let joined = store.change(py, |store| store.join_job(&job, sharing, stops));
        if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let joined = joined?.map(|worker| {
            let worker = Arc::new(worker);
            let renewing = Renewing::start(worker.clone());
            renewing.map(|renewing| Joined { _renewing: renewing, worker })
        });
        let joined = joined.transpose().map_err(|error| {
            of_kind("Io", &format!("cannot start the thread that renews leases: {error}"))
        })?;
        Ok(Self { joined: ArcSwapOption::from(joined.map(Arc::new)), process: process::id() })
    }

    /// Whether it works on nothing anymore.
    #[getter]
    fn has_left(&self) -> bool {
        self.joined.load().is_none()
    }

    /// What to do next; `None` if every range is finished.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Next>> {
        Ok(match self.run(py, unstable::JobWorker::next)? {
            NextRange::Compute { range, is_taken_over } => Some(Next::Compute(range, is_taken_over)),
            NextRange::Wait(pause) => Some(Next::Wait(pause.as_secs_f64())),
            NextRange::Finished => None,
        })
    }

    /// A range that another worker has finished, the digest of the ids that it has there, and who that is.
    fn comparison(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, String)>> {
        let found = self.run(py, |worker| Ok(worker.comparison()))?;
        Ok(found.map(|Comparison { range, digest, worker }| (range, digest, worker)))
    }

    /// Raises the error for a range of which another worker has other ids.
    fn refuse(&self, py: Python<'_>, range: u64, digest: u64, worker: String) -> PyResult<()> {
        let comparison = Comparison { range, digest, worker };
        self.run(py, |worker| Err(worker.differs(&comparison)))
    }

    /// The number of ids is known now.
    fn learn_ids(&self, py: Python<'_>, ids: u64) -> PyResult<()> {
        self.run(py, |worker| {
            worker.learn_ids(ids);
            Ok(())
        })
    }

    /// How many ids there are, if a worker knows.
    fn ids(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.run(py, |worker| Ok(worker.ids()))
    }

    /// This worker has finished a batch. Returns whether another one has taken over the range.
    fn has_lost(&self, py: Python<'_>, range: u64) -> PyResult<bool> {
        self.run(py, |worker| {
            worker.note_progress();
            Ok(worker.is_lost(range))
        })
    }

    /// Counts samples.
    fn count(&self, py: Python<'_>, computed: u64, found: u64) -> PyResult<()> {
        self.run(py, |worker| {
            worker.count(computed, found);
            Ok(())
        })
    }

    /// The ranges with these digests are finished: their rows are durable.
    fn finished(&self, py: Python<'_>, ranges: Vec<(u64, u64)>) -> PyResult<()> {
        self.run(py, |worker| {
            worker.finished(&ranges);
            Ok(())
        })
    }

    /// Leaves a range to others.
    fn give_up(&self, py: Python<'_>, range: u64) -> PyResult<()> {
        self.run(py, |worker| {
            worker.give_up(range);
            Ok(())
        })
    }

    /// What each worker reported last, this one first.
    fn workers(&self, py: Python<'_>) -> PyResult<Vec<OfWorker>> {
        let workers = self.run(py, |worker| Ok(worker.workers()))?;
        let facts = workers.into_iter().map(|worker| {
            let counts = worker.counts;
            (worker.host, worker.process, counts.computed, counts.found, counts.ranges, counts.taken_over)
        });
        Ok(facts.collect())
    }

    /// Works on nothing from here on: others take over at once.
    fn leave(&self, py: Python<'_>) {
        let joined = self.take();
        py.detach(move || drop(joined));
        notices::report(py);
    }
}

impl Drop for JobWorker {
    fn drop(&mut self) {
        let mut joined = self.take();
        let _ = Python::try_attach(|py| py.detach(|| drop(joined.take())));
    }
}
