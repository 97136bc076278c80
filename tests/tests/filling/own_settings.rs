//! A module or a table may have settings of its own; the others have those of their cache.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::time::Duration;

use tcx::{
    Cache, CacheBuilder, Compression, ErrorKind, Extractor, MemoryCachePolicy, Mode, OnMismatch, ReadMode,
    Settings, Stats, Table, Tuning, WhenFull, cached_module,
};
use tcx_tests::wait_until;

const HOUR: Duration = Duration::from_hours(1);

/// A table, with the one text that is put into it.
fn filled(cache: &Cache, id: &str) -> Table<Vec<String>> {
    let texts = cache.table::<Vec<String>>(id).unwrap();
    texts.get_or_compute(&["a"], |_| Ok(vec!["text".repeat(50_000)])).unwrap();
    texts
}

/// A setting, and what shows in the counters of a table that has it, as opposed to one that does not.
type Case = (&'static str, fn(Settings) -> Settings, fn(&Table<Vec<String>>, Stats) -> bool);

const CASES: [Case; 5] = [
    (
        "time_to_live",
        |own| own.time_to_live(Duration::from_millis(1)),
        |table, _| table.get(&["a"]).unwrap().is_none(),
    ),
    (
        "max_bytes",
        |own| own.max_bytes(0, WhenFull::StopWriting),
        |_, stats| (stats.rows_sealed, stats.rows_dropped) == (0, 1),
    ),
    (
        "compression",
        |own| own.compression(Compression::Zstd),
        |_, stats| stats.bytes > 0 && stats.bytes < 50_000,
    ),
    (
        "memory_cache_bytes",
        |own| own.memory_cache_bytes(12_345),
        |_, stats| stats.memory_cache_limit <= 12_345,
    ),
    (
        "read_mode",
        |own| own.tuning(|own| own.read_mode(ReadMode::Pread)),
        |table, _| table.get(&["a"]).unwrap().is_some() && table.stats().memory_cache_bytes > 0,
    ),
];

#[test]
fn a_table_may_have_its_own_settings_and_another_has_those_of_the_cache() {
    for (name, own, shows) in CASES {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let other = filled(&cache, "other_v1");
        let table = filled(&cache.with_settings(own), "own_v1");
        cache.flush().unwrap();
        wait_until(name, || shows(&table, table.stats()));
        assert!(!shows(&other, other.stats()), "{name}");
        assert_eq!(other.get(&["a"]).unwrap().unwrap()[0].len(), 200_000, "{name}");
    }
}

#[test]
fn rows_of_one_table_are_written_sooner_than_those_of_the_others() {
    let cache = Cache::builder().tuning(Tuning::new().flush_interval(HOUR)).open_in_memory().unwrap();
    let hasty = cache.with_settings(|own| own.tuning(|own| own.flush_interval(Duration::from_millis(1))));
    let (other, table) = (filled(&cache, "other_v1"), filled(&hasty, "own_v1"));
    wait_until("the row is written", || table.stats().rows_sealed == 1);
    assert_eq!(other.stats().rows_sealed, 0);
}

#[test]
fn a_setting_of_the_cache_can_be_switched_off_for_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Cache::builder().time_to_live(Duration::from_millis(1)).max_bytes(0, WhenFull::StopWriting);
    let cache = builder.open(dir.path()).unwrap();
    let kept = cache.with_settings(|own| own.no_time_to_live().no_max_bytes());
    let (other, table) = (filled(&cache, "other_v1"), filled(&kept, "own_v1"));
    cache.flush().unwrap();
    wait_until("the other one is too old", || other.get(&["a"]).unwrap().is_none());
    assert_eq!((table.get(&["a"]).unwrap().is_some(), table.stats().rows_sealed), (true, 1));
}

#[test]
fn one_table_may_have_a_cache_for_each_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let of = |version: &str| Table::<Vec<i64>>::builder("numbers_v1").metadata("version", version);
    of("1").open(&cache).unwrap().put(&["a"], &vec![1]).unwrap();
    assert_eq!(of("2").open(&cache).unwrap_err().kind(), ErrorKind::Mismatch);
    let separate = cache.with_settings(|own| own.on_mismatch(OnMismatch::Separate));
    let two = of("2").open(&separate).unwrap();
    two.put(&["a"], &vec![2]).unwrap();
    assert_eq!(of("1").open(&separate).unwrap().get(&["a"]).unwrap(), Some(vec![1]));
}

/// The settings in which the message says that two opens differ.
fn differences(error: &tcx::Error) -> String {
    assert_eq!(error.kind(), ErrorKind::InvalidSettings);
    let text = error.to_string();
    let (_, settings) = text.split_once("open with other settings: ").unwrap();
    settings.split_once("; open it with the same settings").unwrap().0.to_owned()
}

#[test]
fn settings_that_are_not_changed_are_those_of_the_cache() {
    const NEW: MemoryCachePolicy = MemoryCachePolicy::ScanResistant;
    let tuning = Tuning::new().flush_interval(HOUR).flush_bytes(1 << 20).memory_cache_policy(NEW);
    let builder = || -> CacheBuilder {
        Cache::builder().tuning(tuning.clone()).time_to_live(HOUR).compression(Compression::Lz4)
    };
    let dir = tempfile::tempdir().unwrap();
    for cache in [builder().open(dir.path()).unwrap(), builder().open_in_memory().unwrap()] {
        let _table = filled(&cache, "own_v1");
        let own = cache.with_settings(|own| own.tuning(|own| own.refresh_every(Duration::ZERO)));
        let error = own.table::<Vec<String>>("own_v1").unwrap_err();
        assert_eq!(differences(&error), "`refresh_every` is 1s, requested 0ns");
        // One change after the other.
        let own = own.with_settings(|own| {
            own.memory_cache_bytes(7).tuning(|own| own.refresh_every(Duration::from_secs(1)))
        });
        let error = own.table::<Vec<String>>("own_v1").unwrap_err();
        assert!(differences(&error).starts_with("`memory_cache_bytes` is "), "{error}");
        assert!(differences(&error).ends_with(", requested 7"), "{error}");
        cache.with_settings(|own| own).table::<Vec<String>>("own_v1").unwrap();
    }
}

#[test]
fn a_table_that_is_open_with_other_settings_is_refused_with_both_values() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let daily =
        cache.with_settings(|own| own.time_to_live(24 * HOUR).max_bytes(1 << 30, WhenFull::EvictOldest));
    let table = filled(&daily, "own_v1");
    let error = cache.table::<Vec<String>>("own_v1").unwrap_err();
    assert_eq!(
        differences(&error),
        "`time_to_live` is 86400s, requested none; `max_bytes` is 1073741824, requested none; \
         `when_full` is EvictOldest, requested none"
    );
    // In every mode, and with the settings that it has.
    daily.with_mode(Mode::ReadOnly).table::<Vec<String>>("own_v1").unwrap();
    cache.with_mode(Mode::ReadOnly).table::<Vec<String>>("own_v1").unwrap_err();
    drop((table, daily, cache));
    Cache::open(dir.path()).unwrap().table::<Vec<String>>("own_v1").unwrap();
}

#[cached_module(id = "squares_v1", key = i64)]
struct Squares {}

impl Extractor for Squares {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(x.iter().map(|x| x * x).collect())
    }
}

#[cached_module(id = "cubes_v1", key = i64)]
struct Cubes {}

impl Extractor for Cubes {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(x.iter().map(|x| x * x * x).collect())
    }
}

#[test]
fn a_module_may_have_its_own_settings() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().recheck(0.).refuse_repeated_ids(false).open(dir.path()).unwrap();
    let strict = cache
        .with_settings(|own| own.recheck(1.).refuse_repeated_ids(true).max_bytes(0, WhenFull::StopWriting));
    let squares = strict.module(Squares {}).unwrap();
    let cubes = cache.module(Cubes {}).unwrap();
    let ids = [1, 2, 3];
    assert_eq!(squares.forward(&ids, &ids.to_vec()).unwrap(), [1, 4, 9]);
    assert_eq!(cubes.forward(&ids, &ids.to_vec()).unwrap(), [1, 8, 27]);
    assert_eq!((squares.stats().rows_rechecked, cubes.stats().rows_rechecked), (3, 0));
    squares.forward(&[7, 7], &vec![7, 8]).unwrap_err();
    cubes.forward(&[7, 7], &vec![7, 8]).unwrap();
    cache.flush().unwrap();
    assert_eq!((squares.stats().rows_sealed, cubes.stats().rows_sealed), (0, 4));
}

#[test]
fn a_setting_out_of_range_is_refused_when_a_module_is_opened() {
    let cache = Cache::in_memory();
    let error = cache.with_settings(|own| own.recheck(2.)).module(Squares {}).unwrap_err();
    assert_eq!((error.kind(), error.module_id()), (ErrorKind::InvalidSettings, Some("squares_v1")));
    assert!(error.to_string().contains("`recheck`: expected a number from 0 to 1, found 2"), "{error}");
}

#[test]
fn a_table_in_memory_without_a_limit_has_that_of_memory() {
    let cache = Cache::builder().max_bytes(0, WhenFull::StopWriting).open_in_memory().unwrap();
    let table = filled(&cache.with_settings(Settings::no_max_bytes), "own_v1");
    cache.flush().unwrap();
    assert_eq!(table.stats().rows_sealed, 1);
}
