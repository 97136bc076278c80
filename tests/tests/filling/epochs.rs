//! Epochs: batches in a given order, read by threads ahead of the loop that uses them.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use tcx::{Cache, Cached, ErrorKind, Extractor, Missing, Result, cached_module};
use tcx_tests::wait_until;

#[cached_module(id = "epoch_squares_v1", key = i64)]
struct Squares;

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(inputs.iter().map(|x| x * x).collect())
    }
}

fn open(dir: &tempfile::TempDir) -> Arc<Cached<Squares>> {
    let cache = Cache::builder().recheck(0.).open(dir.path()).unwrap();
    Arc::new(cache.module(Squares).unwrap())
}

#[expect(clippy::unnecessary_wraps, reason = "a loader may fail")]
fn load(missing: Missing<'_, i64>) -> Result<Vec<i64>> {
    Ok(missing.ids().copied().collect())
}

fn squares(ids: &[i64]) -> Vec<i64> {
    ids.iter().map(|id| id * id).collect()
}

#[test]
fn batches_come_in_the_given_order_with_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    let order: Vec<i64> = (0..103).map(|number| number * 31 % 103).chain([5, 5, 7]).collect();
    for (batch_size, prefetch, threads) in
        [(10, 1, 1), (10, 2, 1), (7, 5, 3), (1, 3, 9), (106, 2, 1), (1000, 2, 2)]
    {
        let epoch =
            module.epoch(&order).batch_size(batch_size).prefetch(prefetch).threads(threads).load(load);
        let mut batches = epoch.into_iter();
        for (number, ids) in order.chunks(batch_size).enumerate() {
            assert_eq!(batches.len(), order.len().div_ceil(batch_size) - number);
            let (found, outputs) = batches.next().unwrap().unwrap();
            assert_eq!((&*found, &outputs), (ids, &squares(ids)));
            assert_eq!(found.places(), number * batch_size..number * batch_size + ids.len());
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
    assert!(module.epoch::<i64>(&[]).into_iter().next().is_none());
    assert_eq!(module.stats().rows_computed, 103, "each sample was computed once");
}

#[test]
fn as_many_batches_are_read_ahead_as_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    let order: Vec<i64> = (0..8).collect();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let epoch = module.epoch(&order).batch_size(1).prefetch(3).load(move |missing| {
        counted.fetch_add(1, SeqCst);
        load(missing)
    });
    assert_eq!(begun.load(SeqCst), 0, "nothing begins before it is iterated over");
    let mut batches = epoch.into_iter();
    for taken in 0..8 {
        let ahead = (taken + 3).min(8);
        wait_until("the next batches are loaded", || begun.load(SeqCst) == ahead);
        assert_eq!(batches.next().unwrap().unwrap().1, squares(&order[taken..=taken]));
    }
}

#[test]
fn more_threads_than_any_machine_has_use_for_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    let order: Vec<i64> = (0..1025).collect();
    let epoch = |threads| module.epoch(&order).batch_size(1).prefetch(2000).threads(threads).load(load);
    let mut batches = epoch(usize::MAX).into_iter();
    let refused = batches.next().unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidSettings);
    assert!(refused.to_string().contains("`threads` is 1025; expected at most 1024 threads"), "{refused}");
    assert!(batches.next().is_none());
    assert_eq!(epoch(8).into_iter().map(Result::unwrap).count(), 1025);
    // There are no more of them than batches that are read ahead.
    let few = module.epoch(&order).batch_size(100).threads(usize::MAX).load(load);
    assert_eq!(few.into_iter().map(Result::unwrap).count(), 11);
}

#[test]
fn a_missing_sample_without_a_loader_is_an_error_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    module.forward(&[0, 1, 4, 5], &vec![0, 1, 4, 5]).unwrap();
    let found: Vec<_> = module.epoch(&[0, 1, 2, 3, 4, 5]).batch_size(2).into_iter().collect();
    let [first, Err(error), third] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(first.as_ref().unwrap().1, [0, 1]);
    assert_eq!(third.as_ref().unwrap().1, [16, 25]);
    let said = error.to_string();
    assert!(
        said.contains("2 samples of the batch are not in the cache") && said.contains("`load`"),
        "{said}"
    );
    assert_eq!((error.kind(), error.module_id()), (ErrorKind::InvalidBatch, Some("epoch_squares_v1")));
}

#[test]
fn an_error_and_a_panic_of_the_loader_come_in_the_place_of_their_batch() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    let order: Vec<i64> = (0..5).collect();
    for (prefetch, threads) in [(1, 1), (2, 1), (2, 2)] {
        let epoch = module.epoch(&order).batch_size(1).prefetch(prefetch).threads(threads);
        let epoch = epoch.load(|missing| match missing.ids().next() {
            Some(1) => Err(tcx::Error::loader("no such file")),
            Some(3) => panic!("as asked"),
            _ => load(missing),
        });
        let mut batches = epoch.into_iter();
        let mut next = || catch_unwind(AssertUnwindSafe(|| batches.next().unwrap()));
        assert_eq!(next().unwrap().unwrap().1, [0]);
        assert!(format!("{:#}", next().unwrap().unwrap_err()).contains("no such file"));
        assert_eq!(next().unwrap().unwrap().1, [4]);
        assert_eq!(next().unwrap_err().downcast_ref(), Some(&"as asked"));
        assert_eq!(next().unwrap().unwrap().1, [16]);
    }
}

#[test]
fn an_epoch_that_is_dropped_begins_no_other_batch_and_leaves_no_thread() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    let order: Vec<i64> = (0..100).collect();
    let (begins, begun) = mpsc::channel();
    let (goes, go) = mpsc::channel();
    let go = std::sync::Mutex::new(go);
    let epoch = module.epoch(&order).batch_size(1).prefetch(2).load(move |missing| {
        begins.send(missing.ids().copied().collect::<Vec<_>>()).unwrap();
        go.lock().unwrap().recv().unwrap();
        load(missing)
    });
    let batches = epoch.into_iter();
    assert_eq!(begun.recv().unwrap(), [0]);
    let dropping = std::thread::spawn(move || drop(batches));
    goes.send(()).unwrap();
    // The loader may have begun the second batch before the epoch was dropped; if it has not, it
    // may be gone, with its receiver.
    let _ = goes.send(());
    dropping.join().unwrap();
    // The loader was dropped with the last thread.
    let rest: Vec<_> = begun.iter().collect();
    assert!(rest.is_empty() || rest == [[1]], "{rest:?}");
    assert_eq!(module.fetch(&[0], |_| unreachable!("it was stored")).unwrap(), [0]);
}

#[test]
fn an_epoch_of_a_view_reads_the_rows_of_that_view() {
    let dir = tempfile::tempdir().unwrap();
    let module = open(&dir);
    module.view(3).forward(&[1, 2], &vec![10, 20]).unwrap();
    let found: Vec<_> = module.epoch(&[2, 1]).view(3).into_iter().map(|batch| batch.unwrap().1).collect();
    assert_eq!(found, [[400, 100]]);
    module.epoch(&[2, 1]).into_iter().next().unwrap().unwrap_err();
}

#[cached_module(id = "epoch_lengths_v1")]
struct Lengths;

impl Extractor for Lengths {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<String>) -> Result<Vec<i64>> {
        Ok(inputs.iter().map(|text| text.len() as i64).collect())
    }
}

#[test]
fn ids_are_strings_too_and_a_cache_that_is_closed_meanwhile_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let module = Arc::new(cache.module(Lengths).unwrap());
    let order = ["a", "bb", "ccc", "dddd", "eeeee"].map(str::to_owned);
    let load = |missing: Missing<'_, String>| Ok(missing.ids().cloned().collect());
    let mut batches = module.epoch(&order).batch_size(2).prefetch(1).load(load).into_iter();
    let (ids, outputs) = batches.next().unwrap().unwrap();
    assert_eq!((format!("{ids:?}"), outputs), (r#"["a", "bb"]"#.to_owned(), vec![1, 2]));
    cache.close().unwrap();
    // The second batch may have been read before.
    let rest: Vec<_> = batches.map(|batch| batch.map_err(|error| error.kind())).collect();
    assert!(rest.len() == 2 && matches!(rest[1], Err(ErrorKind::Closed)), "{rest:?}");
}
