//! The background writer: a thread of its own with a current-thread runtime, so that it works from sync code
//! and inside any runtime.

pub(crate) mod decide;
pub(crate) mod generation;
mod plan;
mod replace;
pub(crate) mod seal_queue;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::engine::Core;
use crate::engine::threads::{Role, role_for, works_for};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::sessions::Recorder;
use crate::stats::display::Grouped;
use crate::sys::buffer_pool::{self, Writes};
use crate::sys::bytes::Random;
use crate::sys::notice::{Trouble, notice};
use crate::sys::priority::{self, Background};
use crate::sys::wait::wait;
use crate::upkeep::thread::{Due, UpkeepThread};
use crate::write::seal_queue::SealQueue;

/// How soon writing is tried again after a failure, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How soon it is tried again if other processes change the folder all the time.
const CONTENDED: Duration = Duration::from_millis(50);

/// The writer is idle when it has got no command for this time, and up to twice as long: of processes that
/// have stopped writing together, one is the first to join what they wrote.
const IDLE: Duration = Duration::from_secs(1);

/// What a process that is killed leaves untold of its session.
const RECORD_EVERY: Duration = Duration::from_mins(1);

/// When work is done that no caller waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterIntervals {
    pub(crate) flush_interval: Duration,
    pub(crate) gc_grace: Duration,
    /// How often the session is recorded.
    pub(crate) record_every: Duration,
}

impl WriterIntervals {
    pub(crate) fn new(options: &Options) -> Self {
        let Options { flush_interval, gc_grace, .. } = *options;
        Self { flush_interval, gc_grace, record_every: RECORD_EVERY }
    }
}

/// What the writer has to do.
#[derive(Debug)]
enum Command {
    /// Rows came into an empty buffer.
    Rows,
    /// There is a segment's worth of rows, or a caller waits for room.
    Seal,
    /// What was written last is durable, or what kept it from being so.
    Published(Result<()>),
    /// There may be changes to merge.
    Tidy,
    /// It has got no command for a while.
    Idle,
    /// Files were joined and removed, and what is too young is left for later.
    Upkept { is_unfinished: bool },
    /// The session may have gone on.
    Record,
    /// The session is over.
    End(oneshot::Sender<()>),
    /// Everything accepted so far has to be durable; where the folder is on another machine, there or on this one.
    Flush { done: oneshot::Sender<Result<()>>, there: bool },
}

/// The handle of the writer's thread. Dropped, it seals what is buffered and waits for the thread to end, unless it is dropped there.
#[derive(Debug)]
pub(crate) struct Writer {
    commands: Option<UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
    core: Arc<Core>,
}

impl Writer {
    /// `kept` is dropped when the thread ends.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread cannot be started.
    pub(crate) fn start(core: Arc<Core>, times: WriterIntervals, kept: impl Send + 'static) -> Result<Self> {
        let failed = |e| Error::io("cannot start the writer of", core.storage.path(), e);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
        let (commands, receiver) = unbounded_channel();
        let shared = core.clone();
        let task = move || {
            let _kept = kept;
            works_for(&shared, Role::Writes);
            // The threads that it starts have its priority.
            priority::lower(shared.background_priority.of(Background::Writing));
            let _writes = Writes::begin();
            let _off = WriterOff(shared.clone());
            runtime.block_on(run(&shared, receiver, times));
        };
        let thread = thread::Builder::new().name("tcx-writer".to_owned()).spawn(task).map_err(failed)?;
        Ok(Self { commands: Some(commands), thread: Some(thread), core })
    }

    /// No thread.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn none(core: Arc<Core>) -> Self {
        Self { commands: None, thread: None, core }
    }

    pub(crate) fn rows_came(&self) {
        self.tell(Command::Rows);
    }

    pub(crate) fn seal(&self) {
        self.tell(Command::Seal);
    }

    pub(crate) fn tidy(&self) {
        self.tell(Command::Tidy);
    }

    /// Waits until everything accepted so far is durable: in the folder if `there`, else at least on this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if accepted rows cannot be made durable, or were lost, or if one of its own threads asks.
    pub(crate) fn flush(&self, there: bool) -> Result<()> {
        if self.is_own_thread() {
            let message = "an attestation asks to flush the store whose rows it attests, which waits for it: flush it elsewhere";
            return Err(Error::invalid(message));
        }
        let (done, flushed) = oneshot::channel();
        self.tell(Command::Flush { done, there });
        wait(flushed).unwrap_or_else(|_| Err(stopped(&self.core)))
    }

    /// Waits until the session is recorded, or could not be.
    pub(crate) fn end_session(&self) {
        if self.is_own_thread() {
            return;
        }
        let (done, ended) = oneshot::channel();
        self.tell(Command::End(done));
        // A writer that has stopped has nothing to add.
        let _ = wait(ended);
    }

    /// Whether the calling thread is one that would wait for itself.
    pub(crate) fn is_own_thread(&self) -> bool {
        role_for(Arc::as_ptr(&self.core).addr()) == Some(Role::Writes)
    }

    fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // A writer that has ended has turned writing off: `flush` says so.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.commands.take());
        if role_for(Arc::as_ptr(&self.core).addr()).is_some() {
            // What an attestation or a policy held was the last handle: the writer ends by itself.
            return;
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            let path = self.core.storage.path().display();
            tracing::error!(%path, "the background writer panicked");
            notice(Trouble::Lost, format_args!("the background writer of {path} panicked; rows may be lost"));
        }
    }
}

/// The writer ends with rows that it could not write.
fn lost(core: &Core, error: &Error) {
    let lost = lost_rows(core);
    tracing::error!("{lost}: {error:#}");
    let remedy = "call `flush` before the last handle is dropped to get this error";
    notice(Trouble::Lost, format_args!("{lost}: {error:#}; {remedy}"));
}

/// How many rows are lost if the process ends now.
pub(crate) fn lost_rows(core: &Core) -> String {
    match core.buffer.waiting().0 {
        0 => "rows are lost".to_owned(),
        1 => "1 row is lost".to_owned(),
        rows => format!("{} rows are lost", Grouped(rows as u64)),
    }
}

fn stopped(core: &Core) -> Error {
    let source = std::io::Error::other("the background writer has stopped");
    Error::io("cannot write to", core.storage.path(), source)
}

/// Turns writing off when the writer ends, however it ends: no caller waits for room that never comes.
struct WriterOff(Arc<Core>);

impl Drop for WriterOff {
    fn drop(&mut self) {
        self.0.buffer.set_write_failure(Some(stopped(&self.0)));
    }
}

async fn run(core: &Arc<Core>, mut commands: UnboundedReceiver<Command>, times: WriterIntervals) {
    let mut seal_queue = SealQueue::new(core.clone());
    let mut retry: Option<(Instant, Duration)> = None;
    let mut upkeep = UpkeepThread::new(core.clone(), times.gc_grace);
    // Who only reads leaves joining and removing to those that write: there may be hundreds of readers.
    let mut idle = None;
    let mut recorder = Recorder::new(core.clone());
    let mut record = Instant::now().checked_add(times.record_every);
    loop {
        let time = retry.map(|(at, _)| at);
        let time = time.or_else(|| seal_queue.oldest_since()?.checked_add(times.flush_interval));
        let command = tokio::select! {
            biased;
            command = commands.recv() => command,
            published = seal_queue.published() => Some(Command::Published(published)),
            is_unfinished = upkeep.done() => Some(Command::Upkept { is_unfinished }),
            () = at(time) => Some(Command::Seal),
            () = at(idle) => Some(Command::Idle),
            () = at(record) => Some(Command::Record),
        };
        let result = match command {
            Some(Command::Rows) => continue,
            Some(Command::Tidy) => {
                upkeep.want(Due::Changes);
                continue;
            }
            Some(Command::Idle) => {
                buffer_pool::free();
                idle = None;
                upkeep.want(Due::Everything);
                continue;
            }
            Some(Command::Upkept { is_unfinished }) => {
                let later = || Instant::now().checked_add(times.gc_grace.max(IDLE));
                idle = idle.or_else(|| is_unfinished.then(later).flatten());
                continue;
            }
            Some(Command::End(done)) => {
                recorder.record(true);
                // The caller may have gone.
                let _ = done.send(());
                continue;
            }
            Some(Command::Record) => {
                recorder.record(false);
                record = Instant::now().checked_add(times.record_every);
                continue;
            }
            // Writing that has just failed is tried again in its time, not for every batch.
            Some(Command::Seal) if retry.is_some_and(|(at, _)| at > Instant::now()) => continue,
            Some(Command::Seal) if retry.is_none() => seal_queue.write_all(),
            Some(Command::Seal) => seal_queue.seal_all(),
            Some(Command::Published(published)) => published,
            Some(Command::Flush { done, there }) => {
                if there {
                    core.storage.try_now();
                }
                let written = seal_queue.seal_all_in_time();
                let flushed = written.clone().and_then(|()| seal_queue.sync_names());
                let flushed = flushed.and_then(|()| if there { seal_queue.settle() } else { Ok(()) });
                // The caller may have gone.
                let _ = done.send(flushed);
                // Names of others that cannot be synced do not keep own rows waiting.
                written
            }
            None => {
                let result = seal_queue.seal_all_in_time().inspect_err(|error| lost(core, error));
                upkeep.end();
                if result.is_ok() && core.counters.rows_sealed.get() > 0 {
                    core.tidy_at_the_end();
                }
                if let Err(error) = seal_queue.settle_at_the_end() {
                    tracing::warn!("rows wait on this machine, and the next process sends them: {error:#}");
                }
                core.write_passed();
                recorder.record(true);
                return;
            }
        };
        retry = result.err().map(|error| next_retry(retry, error.kind()));
        // After the answer, and by another thread: the next seal does not wait for a faster index.
        upkeep.want_after_seal(IDLE);
        core.write_passed();
        idle = Some(Instant::now() + idle_after());
    }
}

fn idle_after() -> Duration {
    let [bits, ..] = Random::new().0;
    IDLE + IDLE * u32::from(bits) / 256
}

fn next_retry(last: Option<(Instant, Duration)>, kind: ErrorKind) -> (Instant, Duration) {
    if kind == ErrorKind::Contended {
        return (Instant::now() + CONTENDED, CONTENDED);
    }
    let pause = last.map_or(RETRY.0, |(_, pause)| (pause * 2).min(RETRY.1));
    (Instant::now() + pause, pause)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
