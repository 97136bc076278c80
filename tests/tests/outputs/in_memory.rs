//! A cache in memory: the same types, checks and errors as on disk, a limit on its bytes, and no file. (The tests of tables, of the
//! table of all types and of random batches run on disk and in memory.)

use std::process::Command;

use tcx::{Cache, ErrorKind, Mode, WhenFull};
use tcx_tests::Scaled;

#[test]
fn nothing_is_written_to_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_in_memory"));
    program.current_dir(dir.path()).env("TMPDIR", dir.path()).env("HOME", dir.path());
    let ran = program.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{stderr}");
    assert!(
        stdout.contains("the cache of `numbers_v1` at memory://numbers_v1 belongs to another"),
        "{stdout}"
    );
    assert_eq!(stderr, "");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn every_mode_finds_or_computes_rows_in_memory() {
    let cache = Cache::in_memory();
    let forward = |mode: Mode, ids: &[i64]| {
        let scaled = cache.with_mode(mode).module(Scaled::new(2.)).unwrap();
        let before = scaled.stats().misses;
        Scaled::check(&scaled.forward(ids, &Scaled::input(ids)).unwrap(), ids, 2.);
        scaled.stats().misses - before
    };
    assert_eq!(forward(Mode::ReadWrite, &[1, 2]), 2);
    assert_eq!(forward(Mode::ReadWrite, &[1, 2, 3]), 1);
    assert_eq!(forward(Mode::ReadOnly, &[3, 4]), 1);
    assert_eq!(forward(Mode::ReadOnly, &[3, 4]), 1, "it was not kept");
    assert_eq!(forward(Mode::Recompute, &[1]), 1);
    assert_eq!(forward(Mode::Off, &[1]), 0);
    cache.flush().unwrap();
    assert_eq!(forward(Mode::ReadWrite, &[1, 2, 3]), 0);
}

#[test]
fn other_weights_are_refused_in_memory_too() {
    let cache = Cache::in_memory();
    cache.module(Scaled::new(2.)).unwrap().forward(&[1], &Scaled::input(&[1])).unwrap();
    let error = cache.module(Scaled::new(3.)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("at memory://scaled_v1"), "{error}");
}

#[test]
fn a_cache_in_memory_is_shared_by_its_clones_and_by_no_other() {
    let cache = Cache::in_memory();
    cache.table::<Vec<i64>>("numbers_v1").unwrap().put(&["a"], &vec![1]).unwrap();
    let get = |cache: &Cache| cache.table::<Vec<i64>>("numbers_v1").unwrap().get(&["a"]).unwrap();
    assert_eq!(get(&cache.clone()), Some(vec![1]));
    assert_eq!(get(&Cache::in_memory()), None);
    let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
    drop(cache);
    assert_eq!(table.get(&["a"]).unwrap(), Some(vec![1]), "the table is a handle too");
}

#[test]
fn a_full_memory_is_an_error_of_put_and_no_more_bytes() {
    let cache = Cache::builder().max_bytes(4000, WhenFull::StopWriting).open_in_memory().unwrap();
    let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
    let mut number = 0;
    let refused = loop {
        let ids: Vec<String> = (0..100).map(|id| format!("{number} {id}")).collect();
        number += 1;
        assert!(number < 1000, "the limit is in effect at some time");
        if let Err(error) = table.put(&ids, &vec![number; 100]).and_then(|_| table.flush()) {
            break error.to_string();
        }
    };
    assert!(refused.contains("full"), "{refused}");
    assert_eq!(table.get(&["0 0"]).unwrap(), Some(vec![1]), "the first rows are found");
}

#[test]
fn the_path_of_a_cache_in_memory_is_not_taken_for_a_directory() {
    let cache = Cache::in_memory();
    assert_eq!(cache.path().to_str(), Some("memory://"));
    let error = Cache::open(cache.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPath);
    assert!(error.to_string().contains("Cache::in_memory"), "{error}");
    let other = cache.clone();
    cache.close().unwrap();
    let error = other.table::<Vec<i64>>("numbers_v1").unwrap_err();
    assert!(error.to_string().starts_with("the cache in memory was closed"), "{error}");
}

#[test]
fn settings_of_a_cache_hold_in_memory() {
    let builder =
        || Cache::builder().time_to_live(std::time::Duration::ZERO).compression(tcx::Compression::Zstd);
    let cache = builder().open_in_memory().unwrap();
    let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
    let mut computed = 0;
    for _ in 0..2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        table
            .get_or_compute(&["a"], |_| {
                computed += 1;
                Ok(vec![1])
            })
            .unwrap();
    }
    assert_eq!(computed, 2, "rows are too old at once");
    assert_eq!(builder().recheck(2.).open_in_memory().unwrap_err().kind(), ErrorKind::InvalidSettings);
}

#[test]
fn rows_in_memory_are_measured_and_invalidated() {
    let cache = Cache::in_memory();
    let scaled = cache.module(Scaled::new(2.)).unwrap();
    let ids: Vec<i64> = (0..50).collect();
    scaled.forward(&ids, &Scaled::input(&ids)).unwrap();
    scaled.flush().unwrap();
    let stats = scaled.stats();
    assert_eq!((stats.rows, stats.buffered_rows), (50, 0));
    assert!(scaled.disk_usage().unwrap().bytes > stats.bytes, "with the index");
    scaled.invalidate(&[7_i64]).unwrap();
    assert_eq!(scaled.coverage(&ids).unwrap().missing(), [7]);
    scaled.invalidate_where(|id| id > 40).unwrap();
    assert_eq!(scaled.coverage(&ids).unwrap().missing().len(), 10);
    scaled.invalidate_all().unwrap();
    assert_eq!(scaled.coverage(&ids).unwrap().missing().len(), 50);
}
