//! What machines write down: a line for each event, before and after it, so that a machine that is killed leaves a beginning without an
//! end. Times are nanoseconds of the clock that all processes share.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds.
pub(crate) type Time = i64;

pub(crate) fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as Time
}

/// What happened in a life of a machine, which ends when it is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A row of this value is about to be given to the module. No two rows have the same value, which is the time before the lookup.
    Computing {
        key: i64,
        value: Time,
    },
    /// It was accepted.
    Computed {
        key: i64,
        value: Time,
    },
    /// The module could not be asked, or refused a row.
    Failed,
    Invalidating {
        key: i64,
    },
    Invalidated {
        key: i64,
        is_done: bool,
    },
    /// Everything that was computed before `since` in this life is in the store, or on this machine.
    Flushed {
        since: Time,
        is_in_store: bool,
    },
    /// A flush returned an error: it may have said that rows were not kept.
    NotFlushed,
    /// After a refresh that began at `since`, or without one.
    Found {
        key: i64,
        value: Time,
        since: Option<Time>,
    },
    /// The elements of a row are not those of one row.
    Torn {
        key: i64,
    },
    LostDisk,
}

/// An event, its time, and the life of the machine that it happened in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Time,
    pub(crate) machine: u64,
    pub(crate) life: u64,
    pub(crate) event: Event,
}

pub(crate) struct Log {
    file: File,
    life: u64,
}

fn path(dir: &Path, machine: u64) -> PathBuf {
    dir.join(format!("events-{machine}"))
}

/// The disk with the near tier of a machine is lost.
pub(crate) fn note_lost_disk(dir: &Path, machine: u64) {
    Log::open(dir, machine, 0).note(Event::LostDisk);
}

impl Log {
    pub(crate) fn open(dir: &Path, machine: u64, life: u64) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path(dir, machine)).unwrap();
        Self { file, life }
    }

    pub(crate) fn note(&mut self, event: Event) {
        let words = match event {
            Event::Computing { key, value } => format!("computing {key} {value}"),
            Event::Computed { key, value } => format!("computed {key} {value}"),
            Event::Failed => "failed".to_owned(),
            Event::Invalidating { key } => format!("invalidating {key}"),
            Event::Invalidated { key, is_done } => format!("invalidated {key} {}", i64::from(is_done)),
            Event::Flushed { since, is_in_store } => format!("flushed {since} {}", i64::from(is_in_store)),
            Event::NotFlushed => "notflushed".to_owned(),
            Event::Found { key, value, since } => format!("found {key} {value} {}", since.unwrap_or(0)),
            Event::Torn { key } => format!("torn {key}"),
            Event::LostDisk => "lost".to_owned(),
        };
        // One call: a line is there as a whole, or is the last one and cut.
        self.file.write_all(format!("{} {} {words}\n", now(), self.life).as_bytes()).unwrap();
    }
}

/// All events of the machines, by their time.
pub(crate) fn read(dir: &Path, machines: u64) -> Vec<Entry> {
    let entries = (0..machines).flat_map(|machine| {
        let text = fs::read_to_string(path(dir, machine)).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole].lines().map(|line| entry(machine, line)).collect::<Vec<_>>()
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn entry(machine: u64, line: &str) -> Entry {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |position: usize| words[position].parse::<i64>().unwrap();
    let event = match words[2] {
        "computing" => Event::Computing { key: number(3), value: number(4) },
        "computed" => Event::Computed { key: number(3), value: number(4) },
        "failed" => Event::Failed,
        "invalidating" => Event::Invalidating { key: number(3) },
        "invalidated" => Event::Invalidated { key: number(3), is_done: number(4) == 1 },
        "flushed" => Event::Flushed { since: number(3), is_in_store: number(4) == 1 },
        "notflushed" => Event::NotFlushed,
        "found" => {
            let since = Some(number(5)).filter(|since| *since > 0);
            Event::Found { key: number(3), value: number(4), since }
        }
        "torn" => Event::Torn { key: number(3) },
        "lost" => Event::LostDisk,
        other => panic!("no event is called {other}"),
    };
    Entry { at: number(0), machine, life: number(1) as u64, event }
}
