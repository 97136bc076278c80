//! The function `validate` of a table checks each value that enters it, by whatever method, and each value that is found,
//! whichever process has written it and however it is read.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Tensor;
use tcx::{
    Cache, CacheBuilder, CacheableOutput, Compression, Error, ErrorKind, Mode, Partial, Result, Table, Tuning,
};

type Numbers = Arc<Table<Vec<f32>>>;

/// Numbers that are not negative.
fn checked(cache: &Cache) -> Numbers {
    let positive = Table::builder("numbers_v1").validate(|numbers: &Vec<f32>| {
        let negative = numbers.iter().find(|number| **number < 0.);
        negative.map_or(Ok(()), |number| Err(Error::loader(format!("{number} is negative"))))
    });
    Arc::new(positive.open(cache).unwrap())
}

/// A handle of the same table that checks nothing.
fn unchecked(cache: &Cache) -> Numbers {
    Arc::new(cache.table("numbers_v1").unwrap())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// How values enter a table: `values` are those of `ids`, in order.
type Entrance = fn(&Numbers, &'static [&'static str], &[f32]) -> Result<()>;

const PUT: [(&str, Entrance); 2] = [
    ("put", |table, ids, values| table.put(ids, &values.to_vec()).map(drop)),
    ("replace", |table, ids, values| table.replace(ids, &values.to_vec())),
];

const COMPUTED: [(&str, Entrance); 3] = [
    ("get_or_compute", |table, ids, values| table.get_or_compute(ids, |_| Ok(values.to_vec())).map(drop)),
    ("get_or_compute_partial", |table, ids, values| {
        table.get_or_compute_partial(ids, |_| Ok((values.to_vec(), Partial::new()))).map(drop)
    }),
    ("get_or_compute_async", |table, ids, values| {
        let values = values.to_vec();
        run(table.get_or_compute_async(ids.to_vec(), |_| Ok(values))).map(drop)
    }),
];

/// The error names the table, the id and the reason.
fn is_rejected(name: &str, error: &Error) {
    assert_eq!((error.module_id(), error.kind()), (Some("numbers_v1"), ErrorKind::InvalidOutput), "{name}");
    let [failure] = error.load_failures() else { panic!("{name}: {error:#}") };
    assert_eq!(failure.to_string(), "`bad`: `validate` rejects the value: -1 is negative");
    let text = format!("{error:#}");
    assert!(
        text.contains("1 of 3 samples failed: `bad`") && text.ends_with(": -1 is negative"),
        "{name}: {text}"
    );
}

#[test]
fn a_new_value_that_is_rejected_is_an_error_and_is_not_stored_by_any_method() {
    for mode in [Mode::ReadWrite, Mode::Recompute, Mode::ReadOnly, Mode::Off] {
        let writes = matches!(mode, Mode::ReadWrite | Mode::Recompute);
        let put = PUT.iter().filter(|_| writes);
        for (name, enter) in put.chain(&COMPUTED) {
            let cache = Cache::in_memory();
            let table = checked(&cache.with_mode(mode));
            let error = enter(&table, &["a", "bad", "b"], &[1., -1., 2.]).unwrap_err();
            is_rejected(name, &error);
            // What was computed beside it is not lost.
            let is_kept = writes && COMPUTED.iter().any(|(own, _)| own == name);
            let missing: &[usize] = if is_kept { &[1] } else { &[0, 1, 2] };
            let coverage = unchecked(&cache).coverage(&["a", "bad", "b"]).unwrap();
            assert_eq!(coverage.missing(), missing, "{name} in {mode:?}");
            cache.flush().unwrap();
        }
    }
}

#[test]
fn values_that_were_rejected_and_ids_that_failed_are_named_together() {
    let cache = Cache::in_memory();
    let table = checked(&cache);
    let error = table.get_or_compute_partial(&["c", "bad", "a", "gone"], |_| {
        Ok(Partial::split([Ok(3.), Ok(-1.), Ok(1.), Err("no such file")]))
    });
    let error = error.unwrap_err();
    let failed: Vec<&str> = error.load_failures().iter().map(tcx::LoadFailure::id).collect();
    assert_eq!(failed, ["bad", "gone"]);
    assert!(
        error.to_string().contains("computing the values of 2 of 4 samples failed: `bad`, `gone`"),
        "{error}"
    );
    assert_eq!(table.get(&["a", "c"]).unwrap(), Some(vec![1., 3.]));
    assert_eq!(table.stats().rows_computed, 2);
}

#[test]
fn values_that_are_rejected_only_together_are_not_stored() {
    let cache = Cache::in_memory();
    let few = Table::<Vec<f32>>::builder("numbers_v1").validate(|numbers| match numbers.len() {
        0..=2 => Ok(()),
        len => Err(Error::loader(format!("{len} values"))),
    });
    let few = few.open(&cache).unwrap();
    let ids = ["a", "b", "c"];
    let computed = few.get_or_compute(&ids, |_| Ok(vec![1., 2., 3.])).unwrap_err();
    for error in [computed, few.put(&ids, &vec![1., 2., 3.]).unwrap_err()] {
        assert_eq!(format!("{error:#}"), "module `numbers_v1`: `validate` rejects the values: 3 values");
    }
    assert_eq!(few.coverage(&ids).unwrap().missing(), [0, 1, 2]);
}

/// Stored with half of its precision.
#[derive(CacheableOutput)]
struct Halves {
    #[tensor(f32, [1], store = f16)]
    number: Tensor,
}

#[test]
fn a_value_is_checked_as_it_is_stored() {
    let cache = Cache::in_memory();
    let below_one = Table::<Halves>::builder("halves_v1").validate(|halves| {
        if halves.number.max().double_value(&[]) < 1. { Ok(()) } else { Err(Error::loader("not below 1")) }
    });
    let below_one = below_one.open(&cache).unwrap();
    // It is 1 as f16.
    let halves = || Halves { number: Tensor::from_slice(&[0.999_99_f32]).reshape([1, 1]) };
    below_one.put(&["a"], &halves()).unwrap_err();
    below_one.get_or_compute(&["a"], |_| Ok(halves())).map(drop).unwrap_err();
    assert_eq!(below_one.coverage(&["a"]).unwrap().missing(), [0]);
}

/// How values are found: "a" is 1, "bad" is -1, and "b" is 2. Returns the settings with which they are read.
type Written = fn(&Path) -> CacheBuilder;

fn write(dir: &Path, settings: CacheBuilder) {
    let cache = settings.open(dir).unwrap();
    unchecked(&cache).put(&["a", "bad", "b"], &vec![1., -1., 2.]).unwrap();
    cache.close().unwrap();
}

fn put_by_another_process(dir: &Path, values: &[&str]) {
    let putter = Command::new(env!("CARGO_BIN_EXE_putter")).arg(dir).args(values).status();
    assert!(putter.unwrap().success());
}

const WRITTEN: [(&str, Written); 4] = [
    ("in a mapped file", |dir| {
        write(dir, Cache::builder());
        Cache::builder()
    }),
    ("in a file that is read, and then in the memory cache", |dir| {
        write(dir, Cache::builder());
        Cache::builder().tuning(Tuning::new().read_mode(tcx::ReadMode::Pread))
    }),
    ("in a compressed file, and then in the memory cache", |dir| {
        let settings = || Cache::builder().compression(Compression::Zstd);
        write(dir, settings());
        settings()
    }),
    ("by another process", |dir| {
        put_by_another_process(dir, &["a=1", "bad=-1", "b=2"]);
        Cache::builder()
    }),
];

/// Everything that returns found values, with a table that finds "a", "bad" and "b".
fn find(name: &str, cache: &Cache) {
    let ids = &["a", "bad", "b"];
    let table = checked(cache);
    let rejected = || table.stats().miss_causes.rejected;
    for time in 1..3 {
        assert_eq!(table.get(ids).unwrap(), None, "{name}");
        assert_eq!((table.stats().hits, rejected()), (2 * time, time), "{name}");
    }
    assert_eq!(table.get(&["b", "a"]).unwrap(), Some(vec![2., 1.]), "{name}");
    // In these modes the value stays.
    let reader = checked(&cache.with_mode(Mode::ReadOnly));
    assert_eq!(reader.get_or_compute(ids, |_| Ok(vec![20.])).unwrap(), [1., 20., 2.], "{name}");
    assert_eq!(rejected(), 3, "{name}");
    // One that is rejected again is no better.
    for (how, compute) in &COMPUTED {
        let error = compute(&table, ids, &[-2.]).unwrap_err();
        assert_eq!(error.load_failures()[0].id(), "bad", "{name}: {how}");
    }
    assert_eq!(unchecked(cache).get(&["bad"]).unwrap(), Some(vec![-1.]), "{name}");
}

#[test]
fn a_found_value_that_is_rejected_is_absent_or_computed_again_wherever_it_was_found() {
    for (name, written) in WRITTEN {
        for (how, compute) in &COMPUTED {
            let dir = tempfile::tempdir().unwrap();
            let cache = written(dir.path()).open(dir.path()).unwrap();
            find(name, &cache);
            compute(&checked(&cache), &["a", "bad", "b"], &[10.]).unwrap();
            cache.flush().unwrap();
            assert_eq!(
                unchecked(&cache).get(&["a", "bad", "b"]).unwrap(),
                Some(vec![1., 10., 2.]),
                "{name}: {how}"
            );
        }
    }
}

#[test]
fn a_buffered_value_that_is_rejected_is_absent_or_computed_again() {
    for (how, compute) in &COMPUTED {
        let cache = Cache::in_memory();
        unchecked(&cache).put(&["a", "bad", "b"], &vec![1., -1., 2.]).unwrap();
        find("in the write buffer", &cache);
        compute(&checked(&cache), &["a", "bad", "b"], &[10.]).unwrap();
        assert_eq!(unchecked(&cache).get(&["a", "bad", "b"]).unwrap(), Some(vec![1., 10., 2.]), "{how}");
        cache.flush().unwrap();
    }
}

#[test]
fn a_value_that_another_process_writes_after_the_table_was_opened_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let table = checked(&cache);
    assert_eq!(table.get(&["bad"]).unwrap(), None);
    put_by_another_process(dir.path(), &["bad=-1"]);
    tcx_tests::wait_until("the row is found and rejected", || {
        assert_eq!(table.get(&["bad"]).unwrap(), None);
        table.stats().miss_causes.rejected > 0
    });
}

#[test]
fn put_takes_the_place_of_a_value_that_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), Cache::builder());
    let cache = Cache::open(dir.path()).unwrap();
    let table = checked(&cache);
    let before = table.stats();
    assert_eq!(table.put(&["a", "bad", "c"], &vec![10., 20., 30.]).unwrap(), 2);
    let after = table.stats();
    assert_eq!((after.hits, after.misses), (before.hits, before.misses), "a value is put, not looked for");
    assert_eq!(table.get(&["a", "bad", "b", "c"]).unwrap(), Some(vec![1., 20., 2., 30.]));
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    assert_eq!(unchecked(&cache).get(&["a", "bad"]).unwrap(), Some(vec![1., 20.]), "the other one is gone");
}

/// A table's ids may have stamps: the value of another stamp is no found value.
/// A read may fail in that moment as well: what could not be looked at is not replaced as if it was rejected.
#[test]
fn a_value_that_is_not_found_again_when_it_is_checked_is_no_rejected_one() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let other = unchecked(&cache);
    other.put(&["a", "b"], &vec![1., 2.]).unwrap();
    let (invalidating, is_first) = (other.clone(), AtomicBool::new(true));
    let table = Table::builder("numbers_v1").validate(move |numbers: &Vec<f32>| {
        // Of the stored values, not of those that are put.
        if !numbers.contains(&1.) || !is_first.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        invalidating.invalidate(&["a"])?;
        Err(Error::loader("not together"))
    });
    let table = table.open(&cache).unwrap();
    let error = table.put(&["a", "b"], &vec![5., 6.]).unwrap_err();
    assert_eq!((error.kind(), error.module_id()), (ErrorKind::Io, Some("numbers_v1")), "{error}");
    assert_eq!((other.get(&["a"]).unwrap(), other.get(&["b"]).unwrap()), (None, Some(vec![2.])));
    assert_eq!(table.put(&["a", "b"], &vec![5., 6.]).unwrap(), 1);
}

#[test]
fn values_of_stamped_ids_are_checked() {
    let cache = Cache::in_memory();
    let table = |checks: bool| {
        let stamped = Table::<Vec<i64>>::builder("stamped_v1").validate(move |numbers| {
            if checks && numbers.contains(&-1) { Err(Error::loader("-1")) } else { Ok(()) }
        });
        stamped.stamped::<u64>().open(&cache).unwrap()
    };
    table(false).put(&[("a", 1), ("b", 1)], &vec![1, -1]).unwrap();
    let checked = table(true);
    assert_eq!(checked.get(&[("a", 1), ("b", 1)]).unwrap(), None);
    assert_eq!(checked.get_or_compute(&[("a", 1), ("b", 1)], |_| Ok(vec![2])).unwrap(), [1, 2]);
    let error = checked.put(&[("c", 1), ("d", 1)], &vec![1, -1]).unwrap_err();
    assert_eq!(error.load_failures()[0].id(), "d");
}
