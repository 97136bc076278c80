//! Measures a cache in an object store against one in a directory: `cargo xtask bench --remote`.
//!
//! ```sh
//! cargo run --release --package tcx-engine-benches --bin remote
//! ```
//!
//! The store is the test server on this machine. Each answer comes 10 ms late, and all bodies together have a line of 200 MB a second.
//! Rows are 2048 f32, 8 KiB. The program fails if a figure is worse than its floor. A ratio is of the best of some rounds, which alternate
//! between the store and a directory.
//!
//! A module of 1 GiB is filled as fast as the line takes the rows; one that is filled faster waits for the line in the end. A fill of 256 MiB
//! that come at once is measured, too, and has no floor: on two processors, the threads that send and the server take the time from the
//! caller, and a hypervisor may have to return the memory first.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcx_remote::{ClientOptions, Location, RemoteCache};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, LookupOptions, Options, Spec, Store};
use tcx_test_s3::{ACCESS_KEY, SECRET_KEY, Server};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WIDTH: usize = 2048;
const ROW: usize = WIDTH * 4;
const ROWS: usize = 32_768;
/// Rows of a batch: 8 MiB, so that a batch that misses rows asks for the next change once for each 8 MiB.
const BATCH: usize = 1024;
const ROUNDS: usize = 5;
/// Rows that come as fast as the line takes them.
const PACED_ROWS: usize = 4 * ROWS;
const PACED_ROUNDS: usize = 2;
const LATENCY: Duration = Duration::from_millis(10);
/// Bytes in a second.
const LINE: u64 = 200_000_000;
/// Processes of one machine that open the cache at once.
const READERS: usize = 8;

/// What a process that is to read gets: the URL and the near tier.
const READER: &str = "TCX_BENCH_READER";

/// Figures, the worst that each may be (infinite: whatever it is), and whether that is the least.
const FLOORS: [(&str, f64, bool); 6] = [
    ("an epoch from the near tier, of one from a directory", 0.95, true),
    ("a cold epoch, of the line", 0.8, true),
    ("a caller's time that fills as fast as the line, of that with a directory", 1.05, false),
    ("the same, with rows that come at once", f64::INFINITY, false),
    ("requests for a million rows", 1000., false),
    ("downloads for 8 processes of a machine", 1.05, false),
];

fn main() -> ExitCode {
    let done = match std::env::var(READER) {
        Ok(place) => read_as_told(&place).map(|()| true),
        Err(_) => measure(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<bool> {
    let server = Server::start();
    server.fail(|faults| (faults.latency, faults.bandwidth) = (LATENCY, LINE));
    let values = random_bytes();
    let (of_line, requests) = fills(&server, &values, Rows::PACED, PACED_ROUNDS)?;
    let (at_once, _) = fills(&server, &values, Rows::AT_ONCE, ROUNDS)?;
    let url = server.url("at-once-0");
    let (cold, warm) = epochs(&url, &values)?;
    let figures = [warm, cold, of_line, at_once, requests, downloads(&server, &url)?];
    println!("{:<74} {:>8} {:>8}", "figure", "value", "floor");
    let mut are_good = true;
    for ((name, floor, is_least), figure) in FLOORS.into_iter().zip(figures) {
        let is_good = if is_least { figure >= floor } else { figure <= floor };
        are_good &= is_good;
        let floor = if floor.is_finite() { format!("{floor:.2}") } else { "none".to_owned() };
        println!("{name:<74} {figure:>8.2} {floor:>8}{}", if is_good { "" } else { "   worse" });
    }
    Ok(are_good)
}

fn spec() -> Result<Spec> {
    let output = ColumnType::Dense { dtype: DType::F32, shape: &[WIDTH] };
    Ok(Spec::new("remote_v1", KeyType::Int, &output, Identity::default(), Vec::new())?)
}

fn open_at(url: &str, near: &Path) -> Result<Arc<Store>> {
    let Location::Store(url) = Location::parse(url)? else { return Err("it is no URL".into()) };
    let client = [
        ("aws_access_key_id", ACCESS_KEY),
        ("aws_secret_access_key", SECRET_KEY),
        ("aws_region", "us-east-1"),
    ]
    .into_iter()
    .fold(ClientOptions::default(), |client, (name, value)| client.set(name, value));
    Ok(RemoteCache::new(url, near, client)?.open(spec()?, &Options::default())?)
}

fn open_in(dir: &Path) -> Result<Arc<Store>> {
    Ok(Store::open(dir, spec()?, &Options::default())?)
}

/// Random bytes. To make them is no part of a fill.
fn random_bytes() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    (0..ROWS + BATCH * ROW / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// The values of a batch that begins with this row.
fn batch(values: &[u8], first: usize) -> &[u8] {
    &values[8 * first..][..BATCH * ROW]
}

/// The value of a row.
fn row(values: &[u8], number: usize) -> &[u8] {
    &batch(values, number - number % BATCH)[number % BATCH * ROW..][..ROW]
}

/// The rows of a fill.
#[derive(Clone, Copy)]
struct Rows {
    module: &'static str,
    count: usize,
    /// How many bytes of them come in a second.
    rate: Option<u64>,
}

impl Rows {
    const AT_ONCE: Self = Self { module: "at-once", count: ROWS, rate: None };
    const PACED: Self = Self { module: "paced", count: PACED_ROWS, rate: Some(LINE) };
}

/// The time of the caller of a fill until every row is accepted.
fn fill(store: &Store, values: &[u8], rows: Rows) -> Result<Duration> {
    let start = Instant::now();
    for first in (0..rows.count).step_by(BATCH) {
        if let Some(rate) = rows.rate {
            let comes = Duration::from_secs_f64((first * ROW) as f64 / rate as f64);
            std::thread::sleep(comes.saturating_sub(start.elapsed()));
        }
        let keys = Keys::ints((first..first + BATCH).map(|row| row as i64), 0);
        let mut found = store.lookup(keys)?;
        let positions = found.distinct_missing_positions();
        store.insert(&mut found, &positions, vec![Column::dense(batch(values, first % ROWS))])?;
    }
    Ok(start.elapsed())
}

/// How much longer a fill takes its caller with the store, and the requests for a million rows.
fn fills(server: &Server, values: &[u8], rows: Rows, rounds: usize) -> Result<(f64, f64)> {
    let (mut there, mut here, mut requests) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        let mut in_store = || -> Result<()> {
            let near = tempfile::tempdir()?;
            let before = server.counts().all();
            let store = open_at(&server.url(&format!("{}-{round}", rows.module)), near.path())?;
            there.push(fill(&store, values, rows)?);
            store.flush()?;
            drop(store);
            requests = server.counts().all() - before;
            Ok(())
        };
        let mut in_directory = || -> Result<()> {
            let dir = tempfile::tempdir()?;
            let store = open_in(dir.path())?;
            here.push(fill(&store, values, rows)?);
            Ok(store.flush()?)
        };
        // The first leaves the other what is still on its way to the disk.
        if round % 2 == 0 {
            in_store()?;
            in_directory()?;
        } else {
            in_directory()?;
            in_store()?;
        }
    }
    Ok((best(&there) / best(&here), requests as f64 * 1e6 / rows.count as f64))
}

/// Looks all rows up in shuffled batches, and compares each with what it should be.
fn epoch(store: &Store, values: &[u8]) -> Result<Duration> {
    let mut order: Vec<i64> = (0..ROWS as i64).collect();
    order.sort_by_key(|row| (*row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let start = Instant::now();
    for keys in order.chunks(BATCH) {
        let rows = store.lookup_with(Keys::ints(keys.iter().copied(), 0), LookupOptions::uncounted())?;
        if rows.missing() > 0 {
            return Err(format!("{} rows are missing", rows.missing()).into());
        }
        for (position, key) in keys.iter().enumerate() {
            if rows.bytes(0, position) != row(values, *key as usize) {
                return Err(format!("row {key} is wrong").into());
            }
        }
    }
    Ok(start.elapsed())
}

/// The rate of an epoch on a machine that has nothing yet, of the line, and of later ones, of one from a directory.
fn epochs(url: &str, values: &[u8]) -> Result<(f64, f64)> {
    let (near, dir) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let start = Instant::now();
    let there = open_at(url, near.path())?;
    epoch(&there, values)?;
    let cold = (ROWS * ROW) as f64 / start.elapsed().as_secs_f64() / LINE as f64;
    let here = open_in(dir.path())?;
    fill(&here, values, Rows::AT_ONCE)?;
    here.flush()?;
    let (mut remote, mut local) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        remote.push(epoch(&there, values)?);
        local.push(epoch(&here, values)?);
    }
    Ok((cold, best(&local) / best(&remote)))
}

/// How often the rows are received if several processes of a machine open the cache at once.
fn downloads(server: &Server, url: &str) -> Result<f64> {
    let near = tempfile::tempdir()?;
    let place = format!("{url}|{}", near.path().display());
    let before = server.sent();
    let start = || {
        let mut reader = Command::new(std::env::current_exe()?);
        reader.env(READER, &place).stdout(Stdio::null()).spawn()
    };
    let readers = (0..READERS).map(|_| start()).collect::<std::io::Result<Vec<_>>>()?;
    for mut reader in readers {
        if !reader.wait()?.success() {
            return Err("a process cannot read".into());
        }
    }
    Ok((server.sent() - before) as f64 / (ROWS * ROW) as f64)
}

/// Reads all rows once, as one of several processes.
fn read_as_told(place: &str) -> Result<()> {
    let (url, near) = place.split_once('|').ok_or("expected a URL and a directory")?;
    let store = open_at(url, Path::new(near))?;
    epoch(&store, &random_bytes()).map(drop)
}

fn best(times: &[Duration]) -> f64 {
    times.iter().min().map_or(f64::NAN, Duration::as_secs_f64)
}
