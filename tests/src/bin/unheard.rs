//! `unheard DIR WORK SUBSCRIBER`: a process whose stderr a test reads. SUBSCRIBER of `tracing` is `none`, `off` (none, and
//! `progress(false)`) or `some`. WORK is `use`, `absent`, `full`, `unwritable`, `repeated` or
//! `panic`.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::path::Path;

use tcx::{Cache, Extractor, Mode, Result, WhenFull, cached_module};

#[cached_module(id = "unheard_v1", key = i64)]
struct Unheard;

impl Extractor for Unheard {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        assert!(!inputs.contains(&13), "13 brings bad luck");
        Ok(inputs.clone())
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, work, subscriber] = &args[..] else { panic!("usage: unheard DIR WORK SUBSCRIBER") };
    if subscriber == "some" {
        tracing_subscriber::fmt().with_writer(std::io::sink).init();
    }
    let mut settings = Cache::builder().refuse_repeated_ids(false);
    if subscriber == "off" {
        settings = settings.progress(false);
    }
    if work == "full" {
        settings = settings.max_bytes(0, WhenFull::StopWriting);
    }
    if work == "absent" {
        settings = settings.mode(Mode::ReadOnly);
    }
    let cache = settings.open(dir).unwrap();
    let unheard = cache.module(Unheard).unwrap();
    let forward = |ids: &[i64], inputs: &[i64]| unheard.forward(ids, &inputs.to_vec()).unwrap();
    match work.as_str() {
        "use" | "absent" | "full" => (0..3).for_each(|batch| drop(forward(&[batch, 10], &[batch, 10]))),
        "unwritable" => {
            // Neither the folder of the module nor its cache can be made.
            std::fs::write(Path::new(dir), "").unwrap();
            for batch in 0..3 {
                forward(&[batch], &[batch]);
                unheard.flush().unwrap_err();
            }
        }
        "repeated" => (0..3).for_each(|batch| drop(forward(&[batch, batch], &[batch, 10]))),
        "panic" => drop(forward(&[11, 12, 13, 14, 15], &[11, 12, 13, 14, 15])),
        work => panic!("a work of {work}"),
    }
    let _ = cache.close();
}
