//! How well processes share a list of ids if computing takes no processor: `tcx-claims [PROCESSES…]` fills a directory and a store with
//! each of these numbers of processes (1 2 4 8 16 32 64), whose extractor sleeps for 5 ms for each batch of 32 samples.
//!
//! The efficiency is the rate of all processes, from the first sample to the last one that each computes, of that of as many single ones.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tcx::{Cache, Extractor, Sequence, cached_module};
use tcx_test_s3::Server;

const BATCH: usize = 32;
const SLEEPS: Duration = Duration::from_millis(5);
/// What each process computes, in about 5 seconds.
const SAMPLES: u64 = 32_000;

/// Stands in for a network on a device: it takes time, and no processor.
#[cached_module(id = "slow_v1", key = i64)]
struct Slow {
    #[tcx(assume_stateless)]
    times: &'static Mutex<Vec<Instant>>,
}

impl Extractor for Slow {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, numbers: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        self.times.lock().unwrap().push(Instant::now());
        thread::sleep(SLEEPS);
        Ok(numbers.clone())
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [place, near, samples] = &arguments[..] {
        return work(place, near, samples.parse().unwrap());
    }
    let mut counts: Vec<u64> = arguments.iter().map(|count| count.parse().unwrap()).collect();
    if counts.is_empty() {
        counts = vec![1, 2, 4, 8, 16, 32, 64];
    }
    println!(
        "place      processes  rows/s  efficiency  wall s  tail s  PUT+LIST/1000 rows  others/1000 rows"
    );
    let mut single = None;
    for count in &counts {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("cache");
        show("directory", *count, &measure(place.to_str().unwrap(), dir.path(), *count, &[]), &mut single);
    }
    let mut single = None;
    for count in counts {
        let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
        let measured = measure(&server.url("features"), dir.path(), count, &server.settings());
        show("store", count, &measured, &mut single);
    }
}

/// What the processes of a run did.
struct Measured {
    rate: f64,
    wall: Duration,
    /// From the last sample that was computed to the end.
    tail: Duration,
    computed: u64,
    requests: [u64; 2],
}

fn show(place: &str, count: u64, measured: &Measured, single: &mut Option<f64>) {
    let Measured { rate, wall, tail, computed, requests } = measured;
    let first = *single.get_or_insert(rate / count as f64);
    let [puts, others] = requests.map(|requests| requests as f64 * 1000.0 / *computed as f64);
    println!(
        "{place:<10} {count:>9}  {rate:>6.0}  {:>10.3}  {:>6.1}  {:>6.1}  {puts:>18.2}  {others:>16.2}",
        rate / (first * count as f64),
        wall.as_secs_f64(),
        tail.as_secs_f64(),
    );
}

fn measure(place: &str, near: &Path, count: u64, settings: &[(&str, &str)]) -> Measured {
    let samples = (count * SAMPLES).to_string();
    let start = || {
        let mut worker = Command::new(std::env::current_exe().unwrap());
        worker.arg(place).arg(near).arg(&samples).stdin(Stdio::piped()).stdout(Stdio::piped());
        worker.envs(settings.iter().map(|(name, value)| (name.to_uppercase(), value)));
        worker.env("AWS_ALLOW_HTTP", "true").spawn().unwrap()
    };
    let mut workers: Vec<Child> = (0..count).map(|_| start()).collect();
    let mut outputs: Vec<_> =
        workers.iter_mut().map(|own| BufReader::new(own.stdout.take().unwrap())).collect();
    // All have opened the cache before any begins.
    for output in &mut outputs {
        output.read_line(&mut String::new()).unwrap();
    }
    let began = Instant::now();
    for worker in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut measured =
        Measured { rate: 0.0, wall: Duration::ZERO, tail: Duration::ZERO, computed: 0, requests: [0; 2] };
    for (mut worker, mut output) in workers.into_iter().zip(outputs) {
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        assert!(worker.wait().unwrap().success());
        let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [computed, took, tail, puts, others] = numbers[..] else { panic!("{said}") };
        if took > 0 {
            measured.rate += computed as f64 / Duration::from_micros(took).as_secs_f64();
        }
        measured.tail = measured.tail.max(Duration::from_micros(tail));
        measured.computed += computed;
        measured.requests[0] += puts;
        measured.requests[1] += others;
    }
    measured.wall = began.elapsed();
    measured
}

/// A process.
fn work(place: &str, near: &str, samples: u64) {
    let times: &'static Mutex<Vec<Instant>> = Box::leak(Box::default());
    // No sample is computed again as a check.
    let builder = Cache::builder().near_tier(near).recheck(0.0);
    let cached = builder.open(place).unwrap().module(Slow { times }).unwrap().batch_size(BATCH);
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let ids = Sequence::by_position(samples, |position| position as i64);
    let report = cached.warm_shared(ids, |missing| Ok(missing.ids().copied().collect())).unwrap();
    let end = Instant::now();
    let times = times.lock().unwrap();
    let first = times.first().copied().unwrap_or(end);
    let last = times.last().map_or(end, |last| *last + SLEEPS);
    let traffic = cached.stats().traffic;
    println!(
        "{} {} {} {} {}",
        report.computed,
        (last - first).as_micros(),
        (end.saturating_duration_since(last)).as_micros(),
        traffic.puts + traffic.lists,
        traffic.gets + traffic.heads
    );
}
