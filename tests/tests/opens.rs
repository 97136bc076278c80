//! Opening and closing a cache many times leaks nothing. Alone in its program, because resources of other tests would be
//! counted too.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::fs;
use std::path::Path;

use tcx::{Cache, Extractor, Mode, ReadMode, Result, Tuning, cached_module};
use tcx_tests::wait_until;

#[cached_module(id = "opened_v1", key = i64)]
struct Opened;

impl Extractor for Opened {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.clone())
    }
}

/// The resources that the process uses.
#[derive(Clone, Copy, Debug)]
struct Held {
    files: usize,
    maps: usize,
    threads: usize,
    /// Of memory that is resident.
    kib: usize,
}

impl Held {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        // Only maps of files: those of an allocator vary.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().filter(|line| line.contains("opened_v1")).count();
        let files = fs::read_dir("/proc/self/fd").unwrap().count();
        Self { files, maps, threads: number("Threads:"), kib: number("VmRSS:") }
    }
}

/// Opens a cache in varying ways, finds a row, sometimes adds one, and closes the cache.
fn open_and_close(dir: &Path, time: i64) {
    let mode = if time % 3 == 0 { Mode::ReadOnly } else { Mode::ReadWrite };
    let read = if time % 5 == 0 { ReadMode::Pread } else { ReadMode::Auto };
    let cache = Cache::builder().mode(mode).tuning(Tuning::new().read_mode(read)).open(dir).unwrap();
    let opened = cache.module(Opened).unwrap();
    assert_eq!(opened.fetch(&[0], |_| unreachable!("it is there")).unwrap(), [0]);
    if time % 20 == 1 {
        assert_eq!(opened.forward(&[time], &vec![time]).unwrap(), [time]);
    }
    if time % 2 == 0 {
        cache.close().unwrap();
    }
}

#[test]
fn a_thousand_opens_and_closes_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache.module(Opened).unwrap().forward(&[0], &vec![0]).unwrap();
    cache.close().unwrap();
    // The first rounds are not counted: they set up what a process needs once, and the allocator's first pages.
    (0..100).for_each(|time| open_and_close(dir.path(), time));
    let before = Held::now();
    (100..1100).for_each(|time| open_and_close(dir.path(), time));
    wait_until("the last threads have ended", || Held::now().threads <= before.threads);
    let after = Held::now();
    assert_eq!((after.files, after.maps), (before.files, before.maps));
    // The limit reveals a leak of 17 KiB per open; the folder, which every open reads, has grown as well.
    assert!(after.kib <= before.kib + 16 * 1024, "{before:?}, then {after:?}");
}
