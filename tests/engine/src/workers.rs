//! Starting the processes of [`worker`](crate::worker), and listening to them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The program that workers run.
#[derive(Clone, Debug)]
pub struct Workers {
    before: Vec<PathBuf>,
}

impl Workers {
    /// The words of a command line before the worker's own.
    pub fn new<P: Into<PathBuf>>(before: impl IntoIterator<Item = P>) -> Self {
        Self { before: before.into_iter().map(Into::into).collect() }
    }

    /// The command line of a worker.
    pub fn command(&self, command: &str, dir: &Path, arguments: &[&str]) -> Command {
        let mut words = self.before.iter();
        let mut worker = Command::new(words.next().unwrap());
        worker.args(words).arg(command).arg(dir).args(arguments);
        worker
    }

    /// Starts a worker.
    pub fn start(&self, command: &str, dir: &Path, arguments: &[&str]) -> Worker {
        Worker::start(&mut self.command(command, dir, arguments))
    }
}

/// A process and what it says. Dropped, it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    // Files, because a pipe that no process reads would block the worker.
    said: File,
    complained: File,
}

/// How a process has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it said.
    pub said: String,
    /// What it complained of.
    pub complaints: String,
}

impl Worker {
    /// Starts a process.
    pub fn start(command: &mut Command) -> Self {
        Self::start_saying_to(command, tempfile::tempfile().unwrap())
    }

    /// Starts a process that says what it says to a file.
    pub fn start_saying_to(command: &mut Command, said: File) -> Self {
        let complained = tempfile::tempfile().unwrap();
        command.stdout(said.try_clone().unwrap()).stderr(complained.try_clone().unwrap());
        Self { child: command.spawn().unwrap(), said, complained }
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        text(&self.said)
    }

    /// What it has complained of so far.
    pub fn complaints(&self) -> String {
        text(&self.complained)
    }

    /// Whether it goes on.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it, at whatever it does; it must have been running. Tells what it has said.
    ///
    /// # Errors
    ///
    /// What it has complained of before it ended by itself.
    pub fn kill(mut self) -> Result<String, String> {
        if !self.is_running() {
            return Err(format!("it ended by itself: {}{}", self.said(), self.complaints()));
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Ok(self.said())
    }

    /// Waits until it has said this; `false` if it ends without.
    pub fn waits_for(&mut self, what: &str) -> bool {
        loop {
            // In this order: a worker may print something before it ends.
            let is_running = self.is_running();
            if self.said().contains(what) {
                return true;
            }
            if !is_running {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has ended.
    pub fn end(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        Ended { status, said: self.said(), complaints: self.complaints() }
    }

    /// Waits until it has ended, but no longer than this; `None` if it has not.
    pub fn end_within(mut self, time: Duration) -> Option<Ended> {
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > time {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(self.end())
    }
}

impl Ended {
    /// What it said; it must have ended well.
    pub fn well(self) -> String {
        assert!(self.status.success(), "{}{}", self.said, self.complaints);
        self.said
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Read by position: the process writes at the offset that it shares with us.
fn text(file: &File) -> String {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    let read = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}
