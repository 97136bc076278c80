//! Shows: filling a cache while threads load the next inputs, and ending it early.
//! Run: `cargo run --example overlap`
//! Look at: loading and computing take half a second each; with a thread that loads, both together take little more.

use std::thread::sleep;
use std::time::{Duration, Instant};

use tcx::{Cache, Extractor, Missing, Stop, cached_module};

const SAMPLES: i64 = 100;
const BATCH: usize = 10;

/// Stands for a network that takes 5 ms a sample.
#[cached_module(id = "overlapped_v1", key = i64)]
struct Network {}

impl Extractor for Network {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, numbers: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        sleep(Duration::from_millis(5) * numbers.len() as u32);
        Ok(numbers.iter().map(|x| x * x).collect())
    }
}

/// Stands for a decoder that takes 5 ms a sample.
fn decode(missing: &Missing<'_, i64>) -> Vec<i64> {
    sleep(Duration::from_millis(5) * missing.len() as u32);
    missing.ids().copied().collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ids: Vec<i64> = (0..SAMPLES).collect();
    let dir = tempfile::tempdir()?;
    let network = Cache::open(dir.path())?.module(Network {})?.batch_size(BATCH);

    let start = Instant::now();
    assert_eq!(network.warm(&ids, |missing| Ok(decode(&missing)))?.computed, ids.len());
    println!("one after the other: {:.2} s", start.elapsed().as_secs_f64());

    // Each view has rows of its own.
    for workers in [1, 2] {
        let start = Instant::now();
        let warming = network.view(workers).warming().workers(workers as usize);
        let report = warming.run(&ids, |missing| Ok(decode(&missing)))?;
        assert_eq!(report.computed, ids.len());
        println!("with {workers} loading ahead: {:.2} s", start.elapsed().as_secs_f64());
    }

    let stop = Stop::new(); // with the feature `ctrlc`: Stop::on_ctrl_c()?
    let report = network.view(3).warming().stop(&stop).run(&ids, |missing| {
        if missing.ids().any(|id| *id == 30) {
            stop.stop();
        }
        Ok(decode(&missing))
    })?;
    assert!(report.stopped && report.computed < ids.len());
    println!("stopped after {} samples, which are stored", report.computed);
    Ok(())
}
