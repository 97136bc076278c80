//! `static_handle DIR END`: a process whose cache and module are in a `static`, as in many programs, and which ends without a flush:
//! END is `return`, `exit`, `thread` or `panic`.

#![expect(clippy::unwrap_used, reason = "a helper of tests, which read what it leaves")]

use std::sync::OnceLock;
use std::time::Duration;

use tcx::{Cache, Cached, Tuning};
use tcx_tests::Scaled;

static SCALED: OnceLock<Cached<Scaled>> = OnceLock::new();

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, end] = &args[..] else { panic!("usage: static_handle DIR END") };
    // Nothing is written before the end.
    let tuning = Tuning::new().flush_interval(Duration::from_hours(1));
    let cache = Cache::builder().tuning(tuning).open(dir).unwrap();
    let scaled = SCALED.get_or_init(|| cache.module(Scaled::new(3.)).unwrap());
    let ids: Vec<i64> = (0..100).collect();
    scaled.forward(&ids, &Scaled::input(&ids)).unwrap();
    match end.as_str() {
        "return" => {}
        "exit" => std::process::exit(0),
        "thread" => std::thread::scope(|scope| {
            scope.spawn(|| std::process::exit(0));
        }),
        "panic" => panic!("as asked"),
        end => panic!("an end of {end}"),
    }
}
