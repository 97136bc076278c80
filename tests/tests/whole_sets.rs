//! A whole data set is one value of a table, under one id.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tch::{Kind, Tensor};
use tcx::{Cache, CacheableOutput, D2, Error, ErrorKind, Table, Typed, WhenFull};
use tcx_tests::wait_until;

/// The samples of a set: their features, one after the other, and their labels.
#[derive(CacheableOutput)]
struct DataSet {
    #[tensor(f32, [_, 64])]
    features: Vec<Tensor>,
    #[tensor(i64, [_])]
    labels: Vec<Tensor>,
}

/// 13 MB.
const SAMPLES: i64 = 50_000;
const BYTES: u64 = SAMPLES as u64 * (64 * 4 + 8);

fn data_set(samples: i64) -> DataSet {
    let labels = Tensor::arange(samples, (Kind::Int64, tch::Device::Cpu));
    let features = labels.to_kind(Kind::Float).unsqueeze(1).expand([samples, 64], false);
    DataSet { features: vec![features.contiguous()], labels: vec![labels] }
}

fn is_whole(found: &DataSet, samples: i64) {
    let expected = data_set(samples);
    assert_eq!((found.features.len(), found.labels.len()), (1, 1));
    assert!(found.features[0].equal(&expected.features[0]) && found.labels[0].equal(&expected.labels[0]));
}

/// This many threads and two handles ask for the set at once, and again in the next process.
fn is_built_once(samples: i64, threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let open = || Cache::open(dir.path()).unwrap();
    let caches = [open(), open()];
    let tables = caches.each_ref().map(|cache| cache.table::<DataSet>("sets_v1").unwrap());
    let (built, start) = (AtomicUsize::new(0), Barrier::new(threads));
    thread::scope(|scope| {
        for number in 0..threads {
            let (table, built, start) = (&tables[number % 2], &built, &start);
            scope.spawn(move || {
                start.wait();
                let found = table.get_or_compute(&["train"], |_| {
                    built.fetch_add(1, Ordering::Relaxed);
                    Ok(data_set(samples))
                });
                is_whole(&found.unwrap(), samples);
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
    drop(tables);
    for cache in caches {
        cache.close().unwrap();
    }
    let table = open().table::<DataSet>("sets_v1").unwrap();
    is_whole(&table.get(&["train"]).unwrap().unwrap(), samples);
    assert_eq!((table.stats().rows, table.stats().hits), (1, 1));
    assert!(table.stats().bytes > samples as u64 * 264);
}

#[test]
fn a_data_set_is_built_once_by_all_threads_and_found_by_the_next_process() {
    is_built_once(SAMPLES, 8);
}

/// More than the rows that may wait to be written.
#[test]
#[ignore = "takes 3 GB of memory: `cargo test -p tcx-tests --test whole_sets -- --ignored`"]
fn a_data_set_of_300_mb_is_built_once() {
    is_built_once(1_150_000, 2);
}

#[test]
fn a_data_set_is_built_again_when_its_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let daily = cache.with_settings(|own| own.time_to_live(Duration::from_millis(200)));
    let table = daily.table::<DataSet>("sets_v1").unwrap();
    table.put(&["train"], &data_set(SAMPLES)).unwrap();
    cache.flush().unwrap();
    wait_until("the set is too old", || table.get(&["train"]).unwrap().is_none());
    let mut built = 0;
    let found = table.get_or_compute(&["train"], |_| {
        built += 1;
        Ok(data_set(3))
    });
    is_whole(&found.unwrap(), 3);
    assert_eq!(built, 1);
}

#[test]
fn a_data_set_that_is_built_in_part_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let table = cache.table::<DataSet>("sets_v1").unwrap();
    let sample = |number: i64| {
        if number == 700 { Err(Error::loader("sample 700 has no label")) } else { Ok(number as f32) }
    };
    let failed = table.get_or_compute(&["train"], |_| {
        let samples = (0..1000).map(sample).collect::<tcx::Result<Vec<f32>>>()?;
        Ok(data_set(samples.len() as i64))
    });
    let error = failed.map(drop).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "module `sets_v1`: computing the values failed: sample 700 has no label"
    );
    // Its parts do not fit together.
    let mut torn = data_set(SAMPLES);
    torn.labels.clear();
    let error = table.get_or_compute(&["train"], |_| Ok(torn)).map(drop).unwrap_err();
    assert_eq!(error.field(), Some("labels"), "{error}");
    let panics = std::panic::AssertUnwindSafe(|| {
        let _ = table.get_or_compute(&["train"], |_| panic!("out of memory"));
    });
    std::panic::catch_unwind(panics).unwrap_err();
    cache.flush().unwrap();
    assert!(table.get(&["train"]).unwrap().is_none());
    assert_eq!((table.stats().rows_accepted, table.stats().bytes), (0, 0));
    is_whole(&table.get_or_compute(&["train"], |_| Ok(data_set(5))).unwrap(), 5);
}

#[test]
fn a_value_that_is_larger_than_max_bytes_is_an_error_and_evicts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for when_full in [WhenFull::EvictOldest, WhenFull::StopWriting] {
        let builder = Cache::builder().max_bytes(10_000_000, when_full);
        let cache = builder.open(dir.path().join(format!("{when_full:?}"))).unwrap();
        let table = cache.table::<DataSet>("sets_v1").unwrap();
        table.put(&["small"], &data_set(10)).unwrap();
        for stored in [
            table.put(&["train"], &data_set(SAMPLES)).map(drop),
            table.replace(&["train"], &data_set(SAMPLES)),
        ] {
            let error = stored.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Full);
            assert_eq!(
                error.to_string(),
                format!(
                    "module `sets_v1`: cannot store the value for id \"train\": `max_bytes` allows 10000000 bytes for all \
                     values, this one has {BYTES}; raise `max_bytes`, or store the value in parts"
                )
            );
        }
        cache.flush().unwrap();
        assert!(table.get(&["train"]).unwrap().is_none());
        is_whole(&table.get(&["small"]).unwrap().unwrap(), 10);
    }
}

/// Arrow's lists of equal length have fewer than 2³¹ elements.
#[test]
fn an_output_that_is_too_large_for_a_column_is_refused_when_the_table_is_opened() {
    let cache = Cache::in_memory();
    let error = cache.table::<Typed<f32, D2<50_000, 50_000>>>("huge_v1").unwrap_err().to_string();
    assert!(error.contains("is too large; split it into several fields"), "{error}");
    let _: Table<Typed<f32, D2<30_000, 64>>> = cache.table("large_v1").unwrap();
}
