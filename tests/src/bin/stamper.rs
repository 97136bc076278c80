//! `stamper DIR STAMP VALUE`: a process that asks for ten samples of that stamp, computes those that are missing to be `VALUE`,
//! makes them durable, and prints how many were missing and the values.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use tcx::Cache;
use tcx_tests::StampedEcho;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, stamp, value] = &args[..] else { panic!("usage: stamper DIR STAMP VALUE") };
    let (stamp, value): (u64, i64) = (stamp.parse().unwrap(), value.parse().unwrap());
    let cache = Cache::open(dir).unwrap();
    let echo = cache.module(StampedEcho {}).unwrap();
    let ids: Vec<(i64, u64)> = (0..10).map(|id| (id, stamp)).collect();
    let values = echo.forward(&ids, &vec![value; 10]).unwrap();
    cache.flush().unwrap();
    println!("{} {values:?}", echo.stats().misses);
}
