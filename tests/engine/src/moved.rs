//! A module's folder that is moved away under running processes, and comes back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::churn::{Event, judge};
use crate::{Dice, Findings, Worker, Workers, open};

/// What is in the place of the folder for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Nothing, as where a mount is lost.
    Nothing,
    /// A cache of the same module that another process has made.
    AnotherInstance,
}

impl Instead {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Nothing, Self::AnotherInstance];
}

/// What came of one move.
#[derive(Debug, Default)]
pub struct Moved {
    /// What must not be.
    pub findings: Findings,
    /// Blocks of rows that were invalidated or computed.
    pub events: usize,
    /// Calls that failed while the folder was away.
    pub failed: usize,
    /// Handles that were refused, and opened again.
    pub refused: usize,
}

/// A process has written again after so long.
const PATIENCE: Duration = Duration::from_mins(1);
/// Changes of another instance beyond those of this one, which are the first that a process may take for its own; more than
/// are merged into one file.
const FOREIGN_CHANGES: usize = 20;

/// Two processes compute and invalidate, and look at each other's rows; their folder is moved away and back.
pub fn move_folder(workers: &Workers, instead: Instead, seed: u64) -> Moved {
    let dir = tempfile::tempdir().unwrap();
    let place = Place { root: dir.path(), cache: dir.path().join("cache"), back: dir.path().join("back") };
    let mut dice = Dice(seed);
    let mut moved = Moved::default();
    let mut writers = [("a", "b"), ("b", "a")].map(|(name, other)| (name, place.start(workers, name, other)));
    let mut problems = Vec::new();
    if !wait(&mut writers, [5; 2]) {
        problems.push("a process did not begin".to_owned());
    }
    std::thread::sleep(Duration::from_millis(dice.roll(300) as u64));
    if let Err(why) = place.swap(workers, instead, Duration::from_millis(dice.roll(500) as u64)) {
        problems.push(why);
    }
    let before = [0, 1].map(|writer| durable(&writers[writer].1.said()));
    File::create(&place.back).unwrap();
    if !wait(&mut writers, before.map(|before| before + 5)) {
        problems.push("a process did not write again".to_owned());
    }
    let mut events = Vec::new();
    for (name, writer) in writers {
        let complaints = writer.complaints();
        let said = writer.kill().unwrap_or_else(|why| {
            problems.push(format!("{name}: {why}"));
            place.said(name)
        });
        if !problems.is_empty() {
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            problems.push(format!("{name}: {last:?} {complaints}"));
        }
        let lines = |word: &'static str| said.lines().filter_map(move |line| line.strip_prefix(word));
        problems.extend(lines("wrong ").map(str::to_owned));
        moved.failed += lines("failed ").count();
        moved.refused += lines("refused ").count();
        events.push((name, Event::parse_all(&said)));
    }
    let store = open(&place.cache);
    for (name, events) in events {
        moved.events += events.len();
        moved.findings.add(judge(&store, name, &events));
    }
    moved.findings.wrong.extend(problems);
    moved
}

/// Where the folder is, and what the processes say.
struct Place<'a> {
    root: &'a Path,
    cache: PathBuf,
    /// Exists as soon as the folder is back.
    back: PathBuf,
}

impl Place<'_> {
    fn start(&self, workers: &Workers, name: &str, other: &str) -> Worker {
        let other = self.root.join(other);
        let words = [name, other.to_str().unwrap(), self.back.to_str().unwrap()];
        let log = File::options().create(true).read(true).append(true).open(self.root.join(name)).unwrap();
        Worker::start_saying_to(&mut workers.command("moved", &self.cache, &words), log)
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap()
    }

    /// Moves the folder away and back.
    fn swap(&self, workers: &Workers, instead: Instead, time: Duration) -> Result<(), String> {
        let (folder, away) = (self.cache.join("m_v1"), self.root.join("away"));
        fs::rename(&folder, &away).unwrap();
        if instead == Instead::AnotherInstance {
            let own = ["a", "b"].map(|name| self.said(name).matches("dead ").count());
            let enough = format!(" {}\n", own[0] + own[1] + FOREIGN_CHANGES);
            let mut other = workers.start("churn", &self.cache, &["x"]);
            if !other.waits_for(&enough) {
                return Err(format!("another instance was not made: {}{}", other.said(), other.complaints()));
            }
            other.kill()?;
        }
        std::thread::sleep(time);
        if folder.exists() {
            fs::rename(&folder, self.root.join("foreign")).unwrap();
            if instead == Instead::Nothing {
                return Err("a process has made the folder again".to_owned());
            }
        }
        fs::rename(&away, &folder).map_err(|error| format!("a process has made the folder again: {error}"))
    }
}

fn durable(said: &str) -> usize {
    said.lines().filter(|line| line.starts_with("durable ")).count()
}

/// Waits until each process has made that many blocks durable; `false` if it takes too long or one has ended.
fn wait(writers: &mut [(&str, Worker); 2], durable_blocks: [usize; 2]) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE && writers.iter_mut().all(|(_, writer)| writer.is_running()) {
        let is_done = |((_, writer), blocks): (&(&str, Worker), usize)| durable(&writer.said()) >= blocks;
        if writers.iter().zip(durable_blocks).all(is_done) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
