//! How much a module's folder may take and how long its rows are served, seen through a module's handle.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::time::Duration;

use tch::{Kind, Tensor};
use tcx::{Cache, CacheBuilder, Cached, D1, Extractor, Typed, WhenFull, cached_module};
use tcx_tests::wait_until;

const ROW: i64 = 4096;
const MOST: u64 = 64 * ROW as u64;

/// Its input, 4,096 times, so that the values show which call computed them.
#[cached_module(id = "filled_v1", key = i64)]
struct Filled {}

impl Extractor for Filled {
    type Input = Tensor;
    type Output = Typed<u8, D1<4096>>;

    fn forward(&self, inputs: &Tensor) -> tcx::Result<Self::Output> {
        Ok(inputs.to_kind(Kind::Uint8).unsqueeze(1).expand([-1, ROW], false).into())
    }
}

fn open(dir: &Path, settings: CacheBuilder) -> Cached<Filled> {
    settings.open(dir).unwrap().module(Filled {}).unwrap()
}

/// The first byte of each row, every other being the same; those that are missing become `value`.
fn forward(filled: &Cached<Filled>, ids: &[i64], value: i64) -> Vec<i64> {
    let rows = filled.forward(ids, &Tensor::from_slice(&vec![value; ids.len()])).unwrap();
    let first = rows.narrow(1, 0, 1);
    assert!(rows.equal(&first.expand([-1, ROW], false)));
    Vec::try_from(first.flatten(0, -1).to_kind(Kind::Int64)).unwrap()
}

fn disk_bytes(filled: &Cached<Filled>) -> u64 {
    filled.disk_usage().unwrap().bytes
}

#[test]
fn the_oldest_rows_make_room_in_a_full_folder() {
    let dir = tempfile::tempdir().unwrap();
    let filled = open(dir.path(), Cache::builder().max_bytes(MOST, WhenFull::EvictOldest));
    let batches: Vec<Vec<i64>> = (0..32).map(|batch| (8 * batch..8 * batch + 8).collect()).collect();
    for ids in &batches {
        forward(&filled, ids, 1);
        filled.flush().unwrap();
    }
    wait_until("there is room", || disk_bytes(&filled) <= MOST);
    assert!(filled.coverage(&batches[31]).unwrap().is_complete(), "the newest rows stay");
    assert_eq!(filled.coverage(&batches[0]).unwrap().found(), 0, "the oldest do not");
    assert_eq!(forward(&filled, &batches[31], 2), [1; 8]);
    assert_eq!(forward(&filled, &batches[0], 2), [2; 8]);
    filled.flush().unwrap();
    assert_eq!(forward(&filled, &batches[0], 3), [2; 8], "what is computed again is kept again");
}

#[test]
fn a_full_folder_keeps_what_it_has_and_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let filled = open(dir.path(), Cache::builder().max_bytes(MOST, WhenFull::StopWriting));
    // The second batch fills the folder for good: its rows and those of the first take more than the limit, whatever files are
    // joined and removed later.
    let kept: Vec<i64> = (0..80).collect();
    for ids in kept.chunks(40) {
        assert_eq!(forward(&filled, ids, 1), [1; 40]);
        filled.flush().unwrap();
    }
    assert_eq!(filled.stats().rows_dropped, 0);
    let dropped: Vec<i64> = (80..256).collect();
    for ids in dropped.chunks(8) {
        let before = filled.stats().rows_dropped;
        assert_eq!(forward(&filled, ids, 1), [1; 8]);
        filled.flush().unwrap();
        assert_eq!(filled.stats().rows_dropped - before, 8);
    }
    wait_until("joined files are removed", || disk_bytes(&filled) <= 2 * MOST);
    drop(filled);
    let filled = open(dir.path(), Cache::builder().max_bytes(MOST, WhenFull::StopWriting));
    assert!(filled.coverage(&kept).unwrap().is_complete());
    assert_eq!(filled.coverage(&dropped).unwrap().found(), 0);
    assert_eq!(forward(&filled, &kept, 2), vec![1; kept.len()]);
    for value in [3, 4] {
        assert_eq!(forward(&filled, &dropped, value), vec![value; dropped.len()], "computed every time");
    }
}

#[test]
fn samples_are_computed_again_when_their_rows_are_too_old() {
    let dir = tempfile::tempdir().unwrap();
    let ids = [1, 2, 3];
    let long = open(&dir.path().join("long"), Cache::builder().time_to_live(Duration::from_hours(1)));
    let short = open(&dir.path().join("short"), Cache::builder().time_to_live(Duration::from_millis(200)));
    for filled in [&long, &short] {
        assert_eq!(forward(filled, &ids, 1), [1; 3]);
        filled.flush().unwrap();
    }
    wait_until("the rows are too old", || short.coverage(&ids).unwrap().found() == 0);
    let before = short.stats().miss_causes.expired;
    assert_eq!((forward(&short, &ids, 2), forward(&long, &ids, 2)), (vec![2; 3], vec![1; 3]));
    assert_eq!(short.stats().miss_causes.expired - before, 3);
    short.flush().unwrap();
    wait_until("those that took their place are, too", || short.coverage(&ids).unwrap().found() == 0);
}

#[test]
fn values_that_a_folder_filling_up_does_not_keep_are_an_error() {
    const ELEMENTS: i64 = 1 << 18;
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::builder().max_bytes(3 << 20, WhenFull::StopWriting).open(dir.path()).unwrap();
        let table = cache.table::<Typed<f32, D1<{ 1 << 18 }>>>("filling_v1").unwrap();
        // All threads begin while there is room, and wait for each other.
        let put = |name: usize| {
            let values = Tensor::ones([1, ELEMENTS], tch::kind::FLOAT_CPU).into();
            let ids = [name.to_string()];
            if name.is_multiple_of(2) {
                table.put(&ids, &values).map(drop)
            } else {
                table.replace(&ids, &values)
            }
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let put = &put;
            let threads: Vec<_> = (0..16).map(|name| scope.spawn(move || put(name))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        cache.flush().unwrap();
        for (name, answer) in answers.into_iter().enumerate() {
            let is_there = table.coverage(&[name.to_string()]).unwrap().is_complete();
            assert_eq!(answer.is_ok(), is_there, "{name}: {answer:?}");
            if let Err(error) = answer {
                assert!(error.to_string().contains("module `filling_v1`: its folder is full"), "{error}");
            }
        }
    }
}
