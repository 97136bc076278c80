//! What the four modes do with a cache, and invalidation through a module's handle.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::time::{Duration, SystemTime};

use tch::Tensor;
use tcx::{Cache, Cached, Extractor, Mode, cached_module};

/// Returns its inputs unchanged, so the values show which call computed them.
#[cached_module(id = "echo_v1", key = i64)]
struct Echo {
    size: i64,
}

impl Extractor for Echo {
    type Input = Tensor;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Vec<i64>> {
        Ok(Vec::try_from(inputs)?)
    }
}

fn echo(cache: &Cache, mode: Mode) -> Cached<Echo> {
    cache.with_mode(mode).module(Echo { size: 224 }).unwrap()
}

fn forward(module: &Cached<Echo>, ids: &[i64], value: i64) -> Vec<i64> {
    module.forward(ids, &Tensor::from_slice(&vec![value; ids.len()])).unwrap()
}

/// The module's files. The records of passed checks are in a separate folder, written some time after a flush.
fn files(dir: &Path) -> Vec<std::ffi::OsString> {
    let Ok(files) = std::fs::read_dir(dir.join("echo_v1")) else { return Vec::new() };
    let files = files.map(|file| file.unwrap()).filter(|file| file.file_type().unwrap().is_file());
    let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
    names.sort();
    names
}

#[test]
fn read_only_serves_what_is_there_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let read_only = echo(&cache, Mode::ReadOnly);
    assert_eq!(forward(&read_only, &[1, 2], 5), [5, 5]);
    assert_eq!(forward(&read_only, &[1, 2], 6), [6, 6]);
    read_only.flush().unwrap();
    assert!(!dir.path().join("echo_v1").exists());
    let writer = echo(&cache, Mode::ReadWrite);
    assert_eq!(forward(&writer, &[1], 7), [7]);
    writer.flush().unwrap();
    let before = files(dir.path());
    assert_eq!(forward(&read_only, &[1, 2], 8), [7, 8]);
    assert_eq!(forward(&writer, &[1, 2], 9), [7, 9], "what is read only was not kept");
    assert_eq!(files(dir.path()), before);
    let error = read_only.invalidate(&[1]).unwrap_err().to_string();
    assert!(error.contains("mode ReadOnly") && error.contains("echo_v1"), "{error}");
}

#[test]
fn off_touches_nothing_not_even_a_cache_of_another_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    forward(&echo(&cache, Mode::ReadWrite), &[1], 7);
    cache.flush().unwrap();
    let before = files(dir.path());
    let off = cache.with_mode(Mode::Off).module(Echo { size: 448 }).unwrap();
    assert_eq!(forward(&off, &[1, 2, 1], 5), [5, 5, 5]);
    assert_eq!(forward(&off, &[1], 6), [6]);
    assert_eq!(off.coverage(&[1]).unwrap().missing(), [0]);
    off.flush().unwrap();
    off.refresh().unwrap();
    off.invalidate_all().unwrap_err();
    assert_eq!(files(dir.path()), before);
    let elsewhere = tempfile::tempdir().unwrap();
    let unopened = elsewhere.path().join("never");
    let cache = Cache::builder().mode(Mode::Off).open(&unopened).unwrap();
    forward(&cache.module(Echo { size: 1 }).unwrap(), &[1], 5);
    cache.close().unwrap();
    assert!(!unopened.exists());
}

#[test]
fn recompute_computes_each_sample_once_a_handle_and_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let plain = echo(&cache, Mode::ReadWrite);
    forward(&plain, &[1, 2, 3], 1);
    cache.flush().unwrap();
    let again = echo(&cache, Mode::Recompute);
    assert_eq!(again.coverage(&[1, 2, 3]).unwrap().missing(), [0, 1, 2]);
    assert_eq!(forward(&again, &[1, 2, 1], 2), [2, 2, 2]);
    assert_eq!(forward(&again, &[2, 3], 3), [2, 3]);
    cache.flush().unwrap();
    assert_eq!(forward(&again, &[1, 2, 3], 4), [2, 2, 3], "each once");
    assert_eq!(forward(&plain, &[1, 2, 3], 5), [2, 2, 3]);
    assert_eq!(forward(&echo(&cache, Mode::Recompute), &[1], 6), [6], "another handle");
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    assert_eq!(forward(&echo(&cache, Mode::ReadOnly), &[1, 2, 3], 7), [6, 2, 3]);
}

#[test]
fn every_mode_that_writes_tells_of_its_session_when_the_cache_is_closed() {
    for (mode, tells) in
        [(Mode::ReadWrite, true), (Mode::Recompute, true), (Mode::ReadOnly, false), (Mode::Off, false)]
    {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        forward(&echo(&cache, Mode::ReadWrite), &[1], 7);
        cache.close().unwrap();
        std::fs::remove_dir_all(dir.path().join("echo_v1/sessions")).unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let module = echo(&cache, mode);
        forward(&module, &[1, 2], 5);
        cache.close().unwrap();
        assert_eq!(dir.path().join("echo_v1/sessions").exists(), tells, "{mode:?}");
        drop(module);
        assert_eq!(dir.path().join("echo_v1/sessions").exists(), tells, "{mode:?}");
    }
}

#[test]
fn invalidated_samples_are_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let module = echo(&cache, Mode::ReadWrite);
    forward(&module, &[1, 2, 3, 4], 1);
    cache.flush().unwrap();
    module.invalidate(&[1]).unwrap();
    module.invalidate_where(|id| id == 2).unwrap();
    assert_eq!(forward(&module, &[1, 2, 3, 4], 2), [2, 2, 1, 1]);
    module.invalidate_older_than(SystemTime::now() - Duration::from_hours(1)).unwrap();
    assert_eq!(forward(&module, &[1, 2, 3, 4], 3), [2, 2, 1, 1]);
    module.invalidate_older_than(SystemTime::now() + Duration::from_hours(1)).unwrap();
    assert_eq!(forward(&module, &[3, 4], 3), [3, 3]);
    module.invalidate_all().unwrap();
    assert_eq!(forward(&module, &[1, 2, 3, 4], 4), [4; 4]);
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    assert_eq!(forward(&echo(&cache, Mode::ReadWrite), &[1, 2, 3, 4], 5), [4; 4]);
}
