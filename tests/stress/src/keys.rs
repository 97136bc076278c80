//! Measures the index of 100 million keys with rows of one byte: disk, memory and time.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tcx_engine_tests::{Dice, Findings};
use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

use crate::arguments::Arguments;
use crate::budget::Budget;
use crate::machine::{free_bytes, target};
use crate::outcome::Outcome;

/// The command of the process that measures the cache of another.
pub(crate) const MEASURE: &str = "measure-keys";

/// Keys that are added or looked up together.
const BATCH: u64 = 1 << 16;
/// On disk a key takes 17 bytes in the index and 13 in its segment, and joining needs twice of both.
const ROOM: u64 = 100;
/// Keys looked up to measure a hit and a miss, and how many of them together.
const MEASURED: usize = 2_000_000;
const TOGETHER: usize = 256;
/// The most private memory that an open cache takes, however large the number of its keys is.
const MOST_KIB: u64 = 1024;

fn open(dir: &Path) -> std::sync::Arc<Store> {
    let output = ColumnType::Dense { dtype: DType::U8, shape: &[] };
    let spec = Spec::new("keys_v1", KeyType::Int, &output, Identity::default(), Vec::new()).unwrap();
    let options = Options { gc_grace: Duration::ZERO, ..Options::default() };
    Store::open(dir, spec, &options).unwrap()
}

/// Keys have no order.
fn key(number: u64) -> i64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64
}

fn value(key: i64) -> u8 {
    (key ^ key >> 29) as u8
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> (Vec<i64>, Keys) {
    let keys: Vec<i64> = numbers.into_iter().map(key).collect();
    let packed = Keys::ints(keys.iter().copied(), 0);
    (keys, packed)
}

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let dir = tempfile::tempdir_in(target()).unwrap();
    let wanted = (budget.count(100_000_000) as u64).min(free_bytes(dir.path()) / ROOM).max(BATCH);
    let start = Instant::now();
    // The rest of the time is for looking up every key once, and for measuring.
    let count = add(dir.path(), wanted, || budget.left() < budget.time() * 2 / 5);
    let took = start.elapsed();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let measured = budget.count(MEASURED).max(1 << 16);
    command.arg(MEASURE).arg(dir.path()).args([count.to_string(), measured.to_string()]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let Some(report) = said.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok()) else {
        return outcome.wrong(format!(
            "{}: {said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    };
    let number = |name: &str| report[name].as_u64().unwrap_or(0);
    let findings = |what: &str| {
        let rows = number(what);
        (rows > 0).then(|| format!("{rows} of {count} keys")).into_iter().collect()
    };
    outcome.tried_many(count, Findings { lost: findings("lost"), wrong: findings("wrong") });
    let kib = report["figures"]["heap after open KiB"].as_u64().unwrap_or(u64::MAX);
    if kib > MOST_KIB {
        outcome.wrong(format!("{kib} KiB of memory after opening {count} keys, expected at most {MOST_KIB}"));
    }
    outcome.figure("keys written a second", (count as f64 / took.as_secs_f64()) as u64);
    let bytes = |prefix: &str| folder_bytes(&dir.path().join("keys_v1"), prefix) as f64 / count as f64;
    outcome.figure("bytes a key on disk", bytes(""));
    outcome.figure("of them in the index", bytes("run-"));
    for (name, value) in report["figures"].as_object().into_iter().flatten() {
        outcome.figure(name, value.clone());
    }
}

/// Adds keys until their number is reached or it `is_enough`; returns their number.
fn add(dir: &Path, wanted: u64, is_enough: impl Fn() -> bool) -> u64 {
    let store = open(dir);
    let mut count = 0;
    while count < wanted && !is_enough() {
        let (keys, packed) = keys(count..count + BATCH);
        let mut rows = store.lookup(packed).unwrap();
        let all: Vec<usize> = (0..keys.len()).collect();
        let column = Column::dense(&keys.iter().map(|key| value(*key)).collect::<Vec<_>>());
        store.insert(&mut rows, &all, vec![column]).unwrap();
        count += BATCH;
    }
    store.flush().unwrap();
    store.compact().unwrap();
    store.collect(Duration::ZERO).unwrap();
    count
}

fn folder_bytes(folder: &Path, prefix: &str) -> u64 {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let own = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
    own.map(|file| file.metadata().unwrap().len()).sum()
}

/// Opens the cache in a new process and prints a line of figures.
pub(crate) fn measure(words: &[String]) {
    let [dir, count, measured] = words else { panic!("{MEASURE} DIR COUNT MEASURED, found {words:?}") };
    let (dir, count): (&Path, u64) = (dir.as_ref(), count.parse().unwrap());
    let batches = measured.parse::<usize>().unwrap() / TOGETHER;
    let heap_before = heap();
    let start = Instant::now();
    let store = open(dir);
    let opened = start.elapsed();
    let heap_open = heap().saturating_sub(heap_before);
    let (lost, wrong) = check_all(&store, count);
    let heap_used = heap().saturating_sub(heap_before);
    let (hit, miss) = (lookups(&store, 0..count, batches), lookups(&store, count..2 * count, batches));
    let figures = json!({
        "open ms": opened.as_secs_f64() * 1e3,
        "heap after open KiB": heap_open / 1024,
        "heap after use KiB": heap_used / 1024,
        "ns a hit": hit,
        "ns a miss": miss,
        "files": std::fs::read_dir(dir.join("keys_v1")).unwrap().count(),
    });
    println!("{}", json!({ "lost": lost, "wrong": wrong, "figures": figures }));
}

/// The numbers of missing keys and of wrong rows.
fn check_all(store: &Store, count: u64) -> (u64, u64) {
    let (mut lost, mut wrong) = (0, 0);
    for first in (0..count).step_by(BATCH as usize) {
        let (keys, packed) = keys(first..count.min(first + BATCH));
        let rows = store.lookup(packed).unwrap();
        lost += rows.missing() as u64;
        let mut missing = rows.all_missing_positions().peekable();
        for (position, key) in keys.into_iter().enumerate() {
            let is_there = missing.next_if_eq(&position).is_none();
            wrong += u64::from(is_there && rows.bytes(0, position) != [value(key)]);
        }
    }
    (lost, wrong)
}

/// Nanoseconds for each of some random keys.
fn lookups(store: &Store, numbers: std::ops::Range<u64>, batches: usize) -> u64 {
    let mut dice = Dice(7);
    let mut time = Duration::ZERO;
    for _ in 0..batches {
        let chosen =
            (0..TOGETHER).map(|_| numbers.start + dice.roll((numbers.end - numbers.start) as usize) as u64);
        let (_, packed) = keys(chosen);
        let start = Instant::now();
        std::hint::black_box(store.lookup(packed).unwrap().missing());
        time += start.elapsed();
    }
    (time.as_nanos() / (batches * TOGETHER) as u128) as u64
}

/// Bytes of private memory, without mapped files.
fn heap() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
