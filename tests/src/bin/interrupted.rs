//! `interrupted DIR`: a process that fills a cache until Ctrl-C. It prints `began`, and in the end how many samples it has
//! computed.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it prints")]

use std::sync::Once;
use std::thread;
use std::time::Duration;

use tcx::{Cache, Missing, Stop};
use tcx_tests::Scaled;

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let scaled = Cache::open(dir).unwrap().module(Scaled::new(2.)).unwrap().batch_size(1);
    let ids: Vec<i64> = (0..1_000_000).collect();
    let (stop, began) = (Stop::on_ctrl_c().unwrap(), Once::new());
    // The process has one handler.
    let again = Stop::on_ctrl_c().unwrap();
    let load = |missing: Missing<'_, i64>| {
        began.call_once(|| println!("began"));
        thread::sleep(Duration::from_millis(1));
        Ok(Scaled::input(&missing.ids().copied().collect::<Vec<_>>()))
    };
    let report = scaled.warming().stop(&stop).run(&ids, load).unwrap();
    assert!(report.stopped && again.is_stopped());
    println!("{}", report.computed);
    // Nothing is written after this.
    std::process::abort();
}
