//! A process that fills, reads or watches a store: what the tests start several of, and kill.
//!
//! ```text
//! worker fill DIR PREFIX FROM TO [SIZE]    compute the rows that are missing; a line `durable N` after each flush
//! worker watch DIR PREFIX COUNT            print `ready`, wait until all rows are there, print `found`
//! worker check DIR PREFIX COUNT            print how many rows are missing
//! worker soak DIR SEED SECONDS             random batches; print `steps N` at the end, all flushed
//! worker churn DIR PREFIX                  compute, invalidate, join and remove for ever; print what is begun and done
//! worker read DIR LOGS SECONDS             look at what churning workers do, whose words are in the files of LOGS
//! worker join DIR SECONDS                  join and remove all the time
//! worker endure DIR PREFIX [read]          compute and flush for ever, whatever fails; files are mapped, or read
//! worker moved DIR PREFIX OTHER BACK       as churn, in a folder that is moved away until the file BACK exists; look at OTHER's rows
//! worker browse DIR LOG COUNT PAUSE [awaits]
//!                                          read random rows until standard input ends; print what was found
//! worker add DIR PAUSE                     add rows, join and remove until standard input ends; print `durable N`
//! worker visit DIR [made-up]               everything a store can do, once, in a directory that may be a trap
//! ```
//!
//! Every row found is compared with what its id says; a wrong one is a panic.

mod churn;
mod crowd;
mod endure;
mod moved;
mod readers;
mod visit;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tcx_store::{Options, ReadMode, Store};

use crate::{Dice, check, get_or_compute, lookup, options, soak_batch, spec};

const BATCH: usize = 50;

/// Does what the command line says.
pub fn run(arguments: &[String]) {
    tracing_subscriber::fmt().with_ansi(false).with_writer(|| Told).init();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["fill", dir, prefix, from, to] => fill(dir, prefix, number(from), number(to), "224"),
        ["fill", dir, prefix, from, to, size] => fill(dir, prefix, number(from), number(to), size),
        ["watch", dir, prefix, count] => watch(dir, prefix, number(count)),
        ["check", dir, prefix, count] => say(&missing(dir, prefix, number(count)).to_string()),
        ["soak", dir, seed, seconds] => soak(dir, number(seed) as u64, number(seconds) as u64),
        ["churn", dir, prefix] => churn::run(dir, prefix),
        ["read", dir, logs, seconds] => crowd::read(dir, logs, number(seconds) as u64),
        ["join", dir, seconds] => crowd::join(dir, number(seconds) as u64),
        ["endure", dir, prefix] => endure::run(dir, prefix, ReadMode::Auto),
        ["endure", dir, prefix, "read"] => endure::run(dir, prefix, ReadMode::Pread),
        ["moved", dir, prefix, other, back] => moved::run(dir, prefix, other, back),
        ["browse", dir, log, count, pause] => {
            readers::browse(dir, log, number(count), number(pause) as u64, false);
        }
        ["browse", dir, log, count, pause, "awaits"] => {
            readers::browse(dir, log, number(count), number(pause) as u64, true);
        }
        ["add", dir, pause] => readers::add(dir, number(pause) as u64),
        ["visit", dir] => visit::run(dir, false),
        ["visit", dir, "made-up"] => visit::run(dir, true),
        _ => panic!("a worker has other commands, found {arguments:?}"),
    }
}

/// Standard error, where what cannot be written is ignored: writing may be what fails.
struct Told;

impl Write for Told {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap()
}

fn open(dir: &str, size: &str) -> std::sync::Arc<Store> {
    Store::open(Path::new(dir), spec(size), &options()).unwrap_or_else(|error| refused(&error))
}

fn refused(error: &tcx_store::Error) -> ! {
    say(&format!("refused: {error:#}"));
    std::process::exit(3)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn ids(prefix: &str, from: usize, to: usize) -> Vec<String> {
    (from..to).map(|i| format!("{prefix}{i}")).collect()
}

fn fill(dir: &str, prefix: &str, from: usize, to: usize, size: &str) {
    let store = open(dir, size);
    for start in (from..to).step_by(BATCH) {
        let end = to.min(start + BATCH);
        let ids = ids(prefix, start, end);
        get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        if let Err(error) = store.flush() {
            refused(&error);
        }
        say(&format!("durable {end}"));
    }
}

fn watch(dir: &str, prefix: &str, count: usize) {
    let store = open(dir, "224");
    let ids = ids(prefix, 0, count);
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(lookup(&store, &ids).missing(), count, "the watcher comes first");
    say("ready");
    loop {
        let rows = lookup(&store, &ids);
        if rows.missing() == 0 {
            check(&rows, &ids);
            return say("found");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn soak(dir: &str, seed: u64, seconds: u64) {
    let options = Options { flush_bytes: 1 << 20, flush_interval: Duration::from_millis(300), ..options() };
    let store = Store::open(Path::new(dir), spec("224"), &options).unwrap_or_else(|error| refused(&error));
    let (mut dice, start, mut steps) = (Dice(seed), Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        let ids = soak_batch(&mut dice);
        get_or_compute(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>());
        steps += 1;
        if steps % 100 == 0 {
            store.flush().unwrap();
        }
    }
    store.flush().unwrap();
    assert_eq!(store.stats().damaged_segments, 0);
    say(&format!("steps {steps}"));
}

fn missing(dir: &str, prefix: &str, count: usize) -> usize {
    let store = open(dir, "224");
    let ids = ids(prefix, 0, count);
    let found: Vec<&str> =
        ids.iter().map(String::as_str).filter(|id| lookup(&store, &[id]).missing() == 0).collect();
    check(&lookup(&store, &found), &found);
    count - found.len()
}
