//! Measures reading batches by id from memory: shuffled and in order, with one thread and with two.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::data::rows::Batches;
use crate::data::workload::{Workload, shuffled};
use crate::report::{Figures, ROUNDS};
use crate::rivals::{self, Gather, Ours, Reader};
use crate::{Result, Settings};

/// Reads from memory, after an uncounted round that verifies every checksum.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    let random = Batches::new(shuffled(rows));
    against_all::<W>(&dir, rows, &random, figures)?;
    let (mut gather, mut ours) = (Gather::new(&dir, W::bytes())?, Ours::<W>::new(&dir)?);
    let in_order = Batches::new((0..rows).collect());
    let name = |what: &str| format!("{}.{what}.vs_raw_gather", W::NAME);
    let sequential = in_turns(&mut [&mut gather, &mut ours], &in_order)?;
    figures.ratio(name("sequential_read"), &sequential[0], &sequential[1]);
    by_two::<W>(&dir, &ours, &random, figures)
}

/// Two threads share the batches, compared with one and with two threads that copy rows in a loop.
fn by_two<W: Workload>(dir: &Path, ours: &Ours<W>, batches: &Batches, figures: &mut Figures) -> Result<()> {
    let gather = || Gather::new(dir, W::bytes());
    let (mut one, two) = (gather()?, [gather()?, gather()?]);
    let (mut limits, mut pairs, mut limits_of_two) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let pair = Pair::start(scope, [ours.beside(), ours.beside()], batches);
        let pair_of_limits = Pair::start(scope, two, batches);
        for number in 0..=ROUNDS {
            let times = [round(&mut one, batches)?, pair.round()?, pair_of_limits.round()?];
            if number > 0 {
                let all = [&mut limits, &mut pairs, &mut limits_of_two];
                all.into_iter().zip(times).for_each(|(all, time)| all.push(time));
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let name = |what: &str| format!("{}.{what}.two_threads.vs_raw_gather", W::NAME);
    figures.ratio(name("random_read"), &limits, &pairs);
    // The gain of two threads on this machine.
    figures.ratio(name("raw_gather"), &limits, &limits_of_two);
    Ok(())
}

fn against_all<W: Workload>(dir: &Path, rows: usize, batches: &Batches, figures: &mut Figures) -> Result<()> {
    let mut readers = rivals::all::<W>(dir, rows)?;
    let mut dynamic: Vec<&mut dyn Reader> = readers.iter_mut().map(|reader| &mut **reader as _).collect();
    let times = in_turns(&mut dynamic, batches)?;
    let ours = readers.iter().position(|reader| reader.name() == "tcx").ok_or("tcx does not read")?;
    for (reader, time) in readers.iter().zip(&times) {
        let per_second = rows as f64 / crate::report::median(time);
        figures.add(format!("{}.rows_per_second.{}", W::NAME, reader.name()), per_second.round());
    }
    for (number, reader) in readers.iter().enumerate().filter(|(number, _)| *number != ours) {
        let name = format!("{}.random_read.vs_{}", W::NAME, reader.name());
        figures.ratio(name, &times[number], &times[ours]);
    }
    Ok(())
}

/// The times of each reader, which take turns round by round; the first round is not counted.
pub(crate) fn in_turns(readers: &mut [&mut dyn Reader], batches: &Batches) -> Result<Vec<Vec<Duration>>> {
    let mut times = vec![Vec::new(); readers.len()];
    for number in 0..=ROUNDS {
        for (reader, times) in readers.iter_mut().zip(&mut times) {
            let time = round(&mut **reader, batches)?;
            if number > 0 {
                times.push(time);
            }
        }
    }
    Ok(times)
}

/// One reader reads every batch; fails if a row is wrong.
fn round(reader: &mut dyn Reader, batches: &Batches) -> Result<Duration> {
    let mut time = Duration::ZERO;
    for (rows, ids) in batches.iter() {
        let start = Instant::now();
        reader.read(rows, ids)?;
        time += start.elapsed();
        let last = reader.last(rows.len());
        assert_eq!(last as usize, rows[rows.len() - 1], "the right row of {}", reader.name());
    }
    Ok(time)
}

/// Two threads that share the batches of every round, as the readers of an epoch do. They live for all rounds, so that the
/// start of a thread is not measured.
struct Pair {
    start: [Sender<()>; 2],
    done: Receiver<std::result::Result<(), String>>,
}

impl Pair {
    fn start<'s, R: Reader + Send + 's>(
        scope: &'s Scope<'s, '_>,
        readers: [R; 2],
        batches: &'s Batches,
    ) -> Self {
        let (sender, done) = channel();
        let mut first = 0;
        let start = readers.map(|mut reader| {
            let (start, rounds) = channel();
            let (sender, own) = (sender.clone(), first);
            first += 1;
            scope.spawn(move || {
                for () in rounds {
                    let mut own = batches.iter().skip(own).step_by(2);
                    let read = own.try_for_each(|(rows, ids)| reader.read(rows, ids));
                    let sent = sender.send(read.map_err(|error| format!("{error:#}")));
                    assert!(sent.is_ok(), "the main thread waits for the result");
                }
            });
            start
        });
        Self { start, done }
    }

    fn round(&self) -> Result<Duration> {
        let start = Instant::now();
        self.start.iter().try_for_each(|start| start.send(()))?;
        for _ in &self.start {
            self.done.recv()??;
        }
        Ok(start.elapsed())
    }
}
