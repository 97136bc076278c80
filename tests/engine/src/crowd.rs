//! Many processes on one directory: writers, readers, and processes that join and remove.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use crate::churn::{Event, judge};
use crate::{Dice, Findings, Worker, Workers, judge as judge_rows, lookup, open, soak_batch};

/// What a crowd did.
#[derive(Debug, Default)]
pub struct Crowd {
    /// Processes.
    pub processes: usize,
    /// What must not be.
    pub findings: Findings,
    /// Blocks of rows that were invalidated or computed.
    pub events: usize,
    /// Batches of random rows that were computed or found.
    pub batches: usize,
    /// Looks of the readers.
    pub looks: usize,
    /// Looks in vain at what was there, as another look showed.
    pub misses: usize,
}

/// Lets eight processes write, four of them rows that come and go, while four read and two join and remove.
pub fn crowd(workers: &Workers, seconds: u64) -> Crowd {
    let dir = tempfile::tempdir().unwrap();
    let (cache, logs) = (dir.path().join("cache"), dir.path().join("logs"));
    fs::create_dir(&logs).unwrap();
    let time = seconds.to_string();
    let churners: Vec<(String, Worker)> = (0..4)
        .map(|number| {
            let name = format!("p{number}");
            let mut churner = workers.command("churn", &cache, &[&name]);
            let log = File::options().create(true).read(true).append(true).open(logs.join(&name)).unwrap();
            (name, Worker::start_saying_to(&mut churner, log))
        })
        .collect();
    let seeds = ["11", "22", "33", "44"];
    let soakers = seeds.map(|seed| workers.start("soak", &cache, &[seed, &time]));
    let readers = [(); 4].map(|()| workers.start("read", &cache, &[logs.to_str().unwrap(), &time]));
    let joiners = [(); 2].map(|()| workers.start("join", &cache, &[&time]));
    let mut crowd = Crowd { processes: 14, ..Crowd::default() };
    std::thread::sleep(Duration::from_secs(seconds));
    let steps: Vec<usize> = soakers.into_iter().map(|soaker| crowd.number(soaker, "steps ")).collect();
    for reader in readers {
        crowd.take_report(reader);
    }
    for joiner in joiners {
        crowd.number(joiner, "rounds ");
    }
    for (name, churner) in churners {
        match churner.kill() {
            Ok(_) => crowd.judge_churner(&cache, &name, &fs::read_to_string(logs.join(&name)).unwrap()),
            Err(why) => crowd.findings.wrong.push(format!("{name}: {why}")),
        }
    }
    crowd.judge_soakers(&cache, &seeds, &steps);
    crowd
}

impl Crowd {
    /// The number that a process says at its end.
    fn number(&mut self, worker: Worker, before: &str) -> usize {
        let ended = worker.end();
        let number = ended.said.trim().strip_prefix(before).map(|rest| rest.split(' ').next());
        match number.flatten().and_then(|number| number.parse().ok()) {
            Some(number) if ended.status.success() => number,
            _ => {
                self.findings.wrong.push(format!("{}{}", ended.said, ended.complaints));
                0
            }
        }
    }

    fn take_report(&mut self, reader: Worker) {
        let ended = reader.end();
        let mut lines = ended.said.lines();
        let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let ["looks", looks, "misses", misses] = words[..] else {
            self.findings.wrong.push(format!("{}{}", ended.said, ended.complaints));
            return;
        };
        self.looks += looks.parse::<usize>().unwrap();
        self.misses += misses.parse::<usize>().unwrap();
        for line in lines {
            match line.strip_prefix("lost ") {
                Some(what) => self.findings.lost.push(what.to_owned()),
                None => self.findings.wrong.push(line.to_owned()),
            }
        }
    }

    fn judge_churner(&mut self, cache: &Path, name: &str, said: &str) {
        let events = Event::parse_all(said);
        self.events += events.len();
        self.findings.add(judge(&open(cache), name, &events));
    }

    fn judge_soakers(&mut self, cache: &Path, seeds: &[&str], steps: &[usize]) {
        let store = open(cache);
        for (seed, steps) in seeds.iter().zip(steps) {
            let mut dice = Dice(seed.parse().unwrap());
            self.batches += steps;
            for _ in 0..*steps {
                let ids = soak_batch(&mut dice);
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                self.findings.add(judge_rows(&lookup(&store, &ids), &ids));
            }
        }
        if store.stats().damaged_segments > 0 {
            self.findings.wrong.push("a segment is damaged".to_owned());
        }
    }
}
