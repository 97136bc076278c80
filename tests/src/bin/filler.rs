//! `filler DIR WEIGHT COUNT`: a process that computes the rows of the ids below `COUNT` through the facade, and
//! prints a line `durable N` after each flush, or `refused: …`.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::io::Write;

use tcx::Cache;
use tcx_tests::Scaled;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, weight, count] = &args[..] else { panic!("usage: filler DIR WEIGHT COUNT") };
    if let Err(error) = fill(dir, weight.parse().unwrap(), count.parse().unwrap()) {
        say(&format!("refused: {error:#}"));
    }
}

fn fill(dir: &str, weight: f64, count: i64) -> tcx::Result<()> {
    let cache = Cache::open(dir)?;
    let cached = cache.module(Scaled::new(weight))?;
    for start in (0..count).step_by(20) {
        let ids: Vec<i64> = (start..start + 20).collect();
        Scaled::check(&*cached.forward(&ids, &Scaled::input(&ids))?, &ids, weight);
        cache.flush()?;
        say(&format!("durable {}", start + 20));
    }
    Ok(())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}
