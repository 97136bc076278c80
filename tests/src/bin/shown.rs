//! `shown DIR SETTING WORK`: a process that computes for some seconds and closes its cache. SETTING is `default`, `on` or `off`, as
//! `CacheBuilder::progress` says; WORK is `epoch` or `warm`.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::thread;
use std::time::Duration;

use tcx::{Cache, Extractor, Result, cached_module};

const SAMPLES: i64 = 4;

#[cached_module(id = "slow_v1", key = i64)]
struct Slow;

impl Extractor for Slow {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        // Progress is reported after two seconds.
        thread::sleep(Duration::from_millis(800));
        Ok(inputs.clone())
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, setting, work] = &args[..] else { panic!("usage: shown DIR SETTING WORK") };
    let settings = match setting.as_str() {
        "default" => Cache::builder(),
        setting => Cache::builder().progress(setting == "on"),
    };
    let cache = settings.open(dir).unwrap();
    let slow = cache.module(Slow).unwrap().batch_size(1);
    if work == "warm" {
        let ids: Vec<i64> = (0..SAMPLES).collect();
        slow.warm(&ids, |missing| Ok(missing.ids().copied().collect())).unwrap();
    } else {
        for id in 0..SAMPLES {
            slow.forward(&[id], &vec![id]).unwrap();
        }
    }
    drop(slow);
    cache.close().unwrap();
}
