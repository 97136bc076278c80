//! Shows: four workers fill one cache together, without a server; one of them is killed, and the others take over its part.
//! Run: `cargo run -p tcx-library-examples --example cluster` starts the workers itself. On a cluster, start `PROGRAM DIR` on every
//! machine, with a directory that all of them see, or `PROGRAM DIR sharded` by a launcher that gives each process a rank.
//! Look at: each sample is computed by one worker; what the killed worker had leased is computed by others.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tcx::{Cache, Cached, Extractor, Missing, Result, Sequence, cached_module};

const SAMPLES: u64 = 2000;
const WORKERS: usize = 4;

/// Stands in for a network: the inputs are texts, the output is a number.
#[cached_module(id = "lengths_v1", key = i64)]
struct Lengths {}

impl Extractor for Lengths {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, texts: &Vec<String>) -> Result<Vec<i64>> {
        thread::sleep(Duration::from_millis(texts.len() as u64)); // a slow one
        Ok(texts.iter().map(|text| text.len() as i64).collect())
    }
}

/// Every worker has the same ids in the same order; they need not be in memory.
fn ids() -> Sequence<'static, i64> {
    Sequence::by_position(SAMPLES, |position| position as i64)
}

#[expect(clippy::unnecessary_wraps, reason = "one that reads files can fail")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<String>> {
    Ok(missing.ids().map(|id| format!("text {id}")).collect())
}

fn open(dir: &Path) -> Result<Cached<Lengths>> {
    Ok(Cache::open(dir)?.module(Lengths {})?.batch_size(10))
}

/// The other way: each process computes the part of the rank that torchrun, Slurm or Kubernetes has given it.
fn work_by_rank(dir: &Path) -> Result<()> {
    let report = open(dir)?.warming().range_size(50).run_sharded(ids(), load)?;
    // In one write: the processes of a launcher have one output.
    print!("{report}\n{}\n", report.computed);
    Ok(())
}

/// What each worker runs. On a cluster, leave out `expiry`: two minutes are right there.
fn work(dir: &Path) -> Result<()> {
    let lengths = open(dir)?;
    println!("began");
    let report = lengths.warming().range_size(50).expiry(Duration::from_secs(5)).run_shared(ids(), load)?;
    println!("{}", report.computed);
    Ok(())
}

fn start(dir: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(dir).stdout(Stdio::piped()).spawn()
}

fn wait_until_at_work(worker: &mut Child) -> std::io::Result<()> {
    if let Some(output) = worker.stdout.take() {
        BufReader::new(output).read_line(&mut String::new())?;
    }
    thread::sleep(Duration::from_millis(200));
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    if let Some(dir) = arguments.next() {
        let is_by_rank = arguments.next().is_some_and(|way| way == "sharded");
        if is_by_rank {
            work_by_rank(dir.as_ref())?;
        } else {
            work(dir.as_ref())?;
        }
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let mut workers = (0..WORKERS).map(|_| start(dir.path())).collect::<std::io::Result<Vec<Child>>>()?;

    let mut killed = workers.remove(0);
    wait_until_at_work(&mut killed)?;
    killed.kill()?;
    killed.wait()?;

    let mut computed = 0;
    for mut worker in workers {
        let mut said = String::new();
        worker.stdout.take().ok_or("it has an output")?.read_to_string(&mut said)?;
        assert!(worker.wait()?.success());
        let own: u64 = said.lines().last().unwrap_or_default().parse()?;
        println!("a worker computed {own} of {SAMPLES} samples");
        computed += own;
    }
    println!("the killed worker computed about {} of them", SAMPLES.saturating_sub(computed));

    let lengths = open(dir.path())?;
    let all: Vec<i64> = (0..SAMPLES as i64).collect();
    assert!(lengths.coverage(&all)?.is_complete(), "although one was killed");
    // A call after the end looks everything up, and computes nothing.
    assert_eq!(lengths.warm_shared(ids(), load)?.computed, 0);
    Ok(())
}
