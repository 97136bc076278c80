//! Reading batches by id: shuffled and in order, with one thread and with two, from memory and from the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::report::{Figures, ROUNDS};
use crate::rivals::{self, Gather, Ours, Reader};
use crate::rows::Batches;
use crate::workload::{Workload, shuffled};
use crate::{Result, Settings, machine};

/// Everything in memory, every checksum verified before the first round.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let (dir, rows) = (settings.dir.join(W::NAME), W::rows(settings));
    let random = Batches::new(shuffled(rows));
    against_all::<W>(&dir, rows, &random, figures)?;
    let ours = Ours::<W>::new(&dir)?;
    let (mut gather, mut one) = (Gather::new(&dir, W::bytes())?, Ours::<W>::new(&dir)?);
    let in_order = Batches::new((0..rows).collect());
    let name = |what: &str| format!("{}.{what}.vs_raw_gather", W::NAME);
    let sequential = in_turns(&mut [&mut gather, &mut one], &in_order)?;
    figures.ratio(name("sequential_read"), &sequential[0], &sequential[1]);
    let (mut limits, mut pairs, mut limits_of_two) = (Vec::new(), Vec::new(), Vec::new());
    let mut gathers = [Gather::new(&dir, W::bytes())?, Gather::new(&dir, W::bytes())?];
    for _ in 0..ROUNDS {
        limits.push(round(&mut gather, &random)?);
        pairs.push(two_threads(
            [(); 2].map(|()| |rows: &[usize], ids: &[String]| rivals::read(ours.cached(), rows, ids)),
            &random,
        )?);
        let two = gathers.each_mut().map(|gather| |rows: &[usize], ids: &[String]| gather.read(rows, ids));
        limits_of_two.push(two_threads(two, &random)?);
    }
    figures.ratio(name("random_read.two_threads"), &limits, &pairs);
    // What two threads gain at all on this machine.
    figures.ratio(name("raw_gather.two_threads"), &limits, &limits_of_two);
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

/// The times of each reader, round by round in turns; a round before the first is not counted.
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

/// One reader reads every batch; the rows are the right ones.
fn round(reader: &mut dyn Reader, batches: &Batches) -> Result<Duration> {
    let mut time = Duration::ZERO;
    for (rows, ids) in batches.iter() {
        let start = Instant::now();
        let found = reader.read(rows, ids)?;
        time += start.elapsed();
        assert_eq!(found as usize, rows[rows.len() - 1], "the right row of {}", reader.name());
    }
    Ok(time)
}

/// Two threads share the batches.
fn two_threads<R>(readers: [R; 2], batches: &Batches) -> Result<Duration>
where
    R: FnMut(&[usize], &[String]) -> Result<f32> + Send,
{
    let start = Instant::now();
    let mut first = 0;
    std::thread::scope(|scope| {
        let threads = readers.map(|mut read| {
            first += 1;
            let batches = batches.iter().skip(first - 1).step_by(2);
            scope.spawn(move || {
                for (rows, ids) in batches {
                    read(rows, ids).map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(())
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
    })
    .into_iter()
    .collect::<std::result::Result<(), String>>()?;
    Ok(start.elapsed())
}

/// Nothing in memory: every page comes from the disk and every checksum is computed. One round each.
pub(crate) fn cold<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let dir = settings.dir.join(W::NAME);
    let mut order = shuffled(W::rows(settings));
    order.truncate(order.len() / 10);
    let batches = Batches::new(order);
    if !machine::forget(&dir)? {
        figures.skip(format!("{}.cold_read: `dd` with `iflag=nocache` is not there", W::NAME));
        return Ok(());
    }
    let limit = round(&mut Gather::new(&dir, W::bytes())?, &batches)?;
    let ours = round(&mut Ours::<W>::new(&dir)?, &batches)?;
    figures.ratio(format!("{}.cold_read.vs_raw_gather", W::NAME), &[limit], &[ours]);
    Ok(())
}
