//! A store serves what was put into it: at once, after a flush, and when it is opened again.

use std::error::Error;
use std::time::Duration;
use tcx_engine_tests::{OUTPUT, check, columns, files, get_or_compute, lookup, open, options, row, spec};

use tcx_store::{
    BackgroundPriority, Column, ColumnType, Compression, DType, ErrorKind, Eviction, EvictionCandidate,
    EvictionPolicy, Identity, KeyType, Keys, MemoryCachePolicy, Options, ReadMode, Spec, Store, WhenFull,
};

#[test]
fn rows_are_readable_before_and_after_they_are_sealed_and_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ["a", "b", "c"];
    {
        let store = open(dir.path());
        assert_eq!(get_or_compute(&store, &ids), 3);
        assert_eq!(get_or_compute(&store, &["c", "x", "a"]), 1, "unsealed rows are served");
        store.flush().unwrap();
        assert_eq!(get_or_compute(&store, &["b", "x"]), 0, "sealed rows are served");
        let stats = store.stats();
        assert_eq!(
            (stats.hits, stats.misses, stats.rows_sealed, stats.segments, stats.rows),
            (4, 4, 4, 1, 4)
        );
    }
    let store = open(dir.path());
    assert_eq!(get_or_compute(&store, &["x", "c", "b", "a"]), 0);
    assert_eq!(files(dir.path(), "seg-").len(), 1);
    assert_eq!(files(dir.path(), "tmp-").len(), 0);
}

#[test]
fn a_repeated_key_is_missing_once_and_found_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let ids = ["a", "b", "a", "a", "b"];
    assert_eq!(lookup(&store, &ids).distinct_missing_positions(), [0, 1]);
    assert_eq!(get_or_compute(&store, &ids), 2);
    store.flush().unwrap();
    assert_eq!(get_or_compute(&store, &ids), 0);
    assert_eq!(store.stats().rows, 2);
}

#[test]
fn an_empty_batch_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(get_or_compute(&store, &[]), 0);
    store.flush().unwrap();
    assert!(!dir.path().join("m_v1").exists(), "nothing was written");
}

#[test]
fn views_of_a_sample_are_rows_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for view in 0..3 {
        let mut rows = store.lookup(Keys::text(["a"], view).unwrap()).unwrap();
        assert_eq!(rows.missing(), 1);
        let id = format!("a{view}");
        store.insert(&mut rows, &[0], columns(&[&id])).unwrap();
    }
    for flush in [false, true] {
        if flush {
            store.flush().unwrap();
        }
        for view in 0..3 {
            let rows = store.lookup(Keys::text(["a"], view).unwrap()).unwrap();
            assert_eq!(rows.text(2, 0).unwrap(), row(&format!("a{view}")).2);
        }
    }
}

#[test]
fn rows_are_sealed_by_themselves_when_they_are_old_or_many() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { flush_bytes: 4096, ..options() };
    let old = Options { flush_interval: std::time::Duration::from_millis(1), ..options() };
    for (module, options) in [("many", small), ("old", old)] {
        let spec =
            Spec::new(module, KeyType::Int, &ColumnType::Text, Identity::default(), Vec::new()).unwrap();
        let store = Store::open(dir.path(), spec, &options).unwrap();
        let mut rows = store.lookup(Keys::ints(0..100, 0)).unwrap();
        let positions = rows.distinct_missing_positions();
        store
            .insert(&mut rows, &positions, vec![Column::text((0..100).map(|i| format!("{i:0100}")))])
            .unwrap();
        while store.stats().rows_sealed < 100 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

#[test]
fn a_queue_that_is_too_small_slows_the_caller_down_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        Store::open(dir.path(), spec("224"), &Options { write_buffer_bytes: 2000, ..options() }).unwrap();
    let ids: Vec<String> = (0..500).map(|i| format!("id{i}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for batch in ids.chunks(20) {
        assert_eq!(get_or_compute(&store, batch), 20, "larger than the whole queue, and taken");
    }
    store.flush().unwrap();
    check(&lookup(&store, &ids), &ids);
    assert_eq!(store.stats().rows_dropped, 0);
}

#[test]
fn another_identity_schema_or_key_type_is_refused_with_both_sides_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |spec: Spec, said: &str| {
        let error = Store::open(dir.path(), spec, &options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.to_string().contains("bump the id, as in `m_v2`"), "{error}");
    };
    let all = || {
        let none = Identity::default;
        let size = || [("size".to_owned(), "224".to_owned())].into_iter().collect();
        let dense = ColumnType::Dense { dtype: DType::F16, shape: &[4] };
        refused(spec("448"), "`size`: 224 in the cache, 448 in the code");
        refused(
            Spec::new("m_v1", KeyType::Text, &OUTPUT, none(), Vec::new()).unwrap(),
            "`size`: 224 in the cache, absent",
        );
        refused(
            Spec::new("m_v1", KeyType::Int, &OUTPUT, size(), Vec::new()).unwrap(),
            "ids: String in the cache, i64 in",
        );
        refused(
            Spec::new("m_v1", KeyType::Text, &dense, size(), Vec::new()).unwrap(),
            "`vector`: f32 [4, 8] in the cache, absent",
        );
    };
    let store = open(dir.path());
    all(); // in this process, before anything is on disk
    get_or_compute(&store, &["a"]);
    store.flush().unwrap();
    drop(store);
    all();
    assert_eq!(get_or_compute(&open(dir.path()), &["a"]), 0, "the cache is still good");
}

#[test]
fn wrong_columns_and_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut rows = lookup(&store, &["a", "b"]);
    let mut wrong = |columns: Vec<Column>, said: &str| {
        let error = store.insert(&mut rows, &[0, 1], columns).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    };
    wrong(columns(&["a"]), "column `vector`: expected 2 rows of f32 [4, 8]");
    wrong(Vec::new(), "expected 6 columns, found 0");
    let mut swapped = columns(&["a", "b"]);
    swapped.swap(1, 2);
    wrong(swapped, "column `score`");
    let mut with = |number: usize, column: Column, said: &str| {
        let mut columns = columns(&["a", "b"]);
        columns[number] = column;
        wrong(columns, said);
    };
    with(2, Column::varying(vec![b'a', 255], [1, 2]), "column `caption`: expected 2 rows of String");
    with(4, Column::dense(&[0; 16]), "column `maybe`: expected 2 rows of optional i64 []");
    with(4, Column::dense(&[0; 16]).optional([true]), "column `maybe`");
    with(
        3,
        Column::varying(vec![1, 2], [1, 2]).optional([true; 2]),
        "column `image`: expected 2 rows of bytes",
    );
    // A row has pairs of two bytes each.
    with(5, Column::varying(vec![0; 6], [4, 6]), "column `tokens`: expected 2 rows of i16 [_, 2]");
    with(5, Column::varying(vec![0; 8], [8, 4]), "column `tokens`");
    let error = store.lookup(Keys::ints([1], 0)).unwrap_err();
    assert!(error.to_string().contains("ids of `m_v1` are String, found i64"), "{error}");
    assert!(Keys::text([""], 0).unwrap_err().to_string().contains("id 0 of the batch is empty"));
    let long = "é".repeat(3000);
    assert!(Keys::text(["a", &long], 0).unwrap_err().to_string().contains("id 1 of the batch"));
}

#[test]
fn a_reader_sees_the_rows_of_a_writer_that_came_later() {
    let dir = tempfile::tempdir().unwrap();
    let reader = open(dir.path());
    assert_eq!(lookup(&reader, &["a"]).missing(), 1);
    // Simulates another process that writes to the folder: the files are copied from a third folder. A second store on this
    // folder, even through a link, would be shared by the registry.
    let other = tempfile::tempdir().unwrap();
    let writer = open(other.path());
    get_or_compute(&writer, &["a"]);
    writer.flush().unwrap();
    std::fs::create_dir(dir.path().join("m_v1")).unwrap();
    for file in files(other.path(), "") {
        std::fs::copy(&file, dir.path().join("m_v1").join(file.file_name().unwrap())).unwrap();
    }
    while lookup(&reader, &["a"]).missing() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    check(&lookup(&reader, &["a"]), &["a"]);
}

#[test]
fn without_its_runs_a_store_finds_every_row_and_makes_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ["a", "b", "c"];
    let store = open(dir.path());
    get_or_compute(&store, &ids);
    store.flush().unwrap();
    drop(store);
    for run in files(dir.path(), "run-") {
        std::fs::remove_file(run).unwrap();
    }
    let store = open(dir.path());
    assert_eq!(get_or_compute(&store, &ids), 0);
    assert_eq!(store.stats().rebuilt_runs, 1);
    assert_eq!(files(dir.path(), "run-").len(), 1);
}

#[test]
fn a_moved_cache_is_still_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("before"));
    get_or_compute(&store, &["a"]);
    store.flush().unwrap();
    drop(store);
    std::fs::rename(dir.path().join("before"), dir.path().join("after")).unwrap();
    assert_eq!(get_or_compute(&open(&dir.path().join("after")), &["a"]), 0);
}

#[test]
fn a_folder_whose_files_were_removed_is_begun_again_by_who_opens_the_module_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a"]);
    store.flush().unwrap();
    store.invalidate(&Keys::text(["a"], 0).unwrap()).unwrap();
    for file in std::fs::read_dir(store.path()).unwrap().map(|file| file.unwrap().path()) {
        if file.is_file() { std::fs::remove_file(file) } else { std::fs::remove_dir_all(file) }.unwrap();
    }
    get_or_compute(&store, &["b"]);
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("open the module again"), "{error}");
    let again = open(dir.path());
    assert_eq!(get_or_compute(&again, &["b"]), 1);
    again.flush().unwrap();
    again.invalidate(&Keys::text(["a"], 0).unwrap()).unwrap();
    let error = format!("{:#}", store.flush().unwrap_err());
    assert!(error.contains("created again by another process"), "{error}");
}

#[test]
fn a_folder_that_was_removed_and_made_again_is_not_mixed_with_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a"]);
    store.flush().unwrap();
    std::fs::remove_dir_all(dir.path().join("m_v1")).unwrap();
    get_or_compute(&store, &["b"]);
    store.flush().unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(
        get_or_compute(&store, &["b"]),
        0,
        "written after the folder was removed: durable all the same"
    );
    assert_eq!(lookup(&store, &["a"]).missing(), 1, "removed with the folder");
}

#[test]
fn strange_files_in_the_folder_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m_v1");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("notes.txt"), "mine").unwrap();
    std::fs::create_dir(folder.join(format!("seg-{}-{}.arrow", "0".repeat(32), "0".repeat(16)))).unwrap();
    let store = open(dir.path());
    get_or_compute(&store, &["a"]);
    store.flush().unwrap();
    drop(store);
    assert_eq!(get_or_compute(&open(dir.path()), &["a"]), 0);
    assert_eq!(std::fs::read_to_string(folder.join("notes.txt")).unwrap(), "mine");
}

struct AsTheyCome;

impl EvictionPolicy for AsTheyCome {
    fn name(&self) -> &'static str {
        "as they come"
    }

    fn choose(&self, candidates: &[EvictionCandidate], _: u64) -> Vec<usize> {
        (0..candidates.len()).collect()
    }
}

#[test]
fn a_second_open_shares_the_store_with_the_same_settings_and_is_refused_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let first = Options { max_bytes: Some(1 << 30), ..options() };
    let store = Store::open(dir.path(), spec("224"), &first).unwrap();
    get_or_compute(&store, &["a"]);
    let read_only = Options { read_only: true, ..first.clone() };
    for same in [&first, &read_only] {
        let again = Store::open(dir.path(), spec("224"), same).unwrap();
        assert!(std::sync::Arc::ptr_eq(&store, &again));
    }
    let hour = Duration::from_hours(1);
    let others: [(&str, Options); 14] = [
        ("`max_bytes` is 1073741824, requested 5", Options { max_bytes: Some(5), ..first.clone() }),
        (
            "`when_full` is StopWriting, requested EvictOldest",
            Options { when_full: WhenFull::EvictOldest, ..first.clone() },
        ),
        ("`time_to_live` is none, requested 3600s", Options { time_to_live: Some(hour), ..first.clone() }),
        (
            "`compression` is None, requested Zstd",
            Options { compression: Compression::Zstd, ..first.clone() },
        ),
        ("`read_mode` is Auto, requested Pread", Options { read_mode: ReadMode::Pread, ..first.clone() }),
        (
            "`background_priority` is Low, requested Idle",
            Options { background_priority: BackgroundPriority::Idle, ..first.clone() },
        ),
        ("requested 7", Options { memory_cache_bytes: 7, ..first.clone() }),
        (
            "`memory_cache_policy` is Lru, requested ScanResistant",
            Options { memory_cache_policy: MemoryCachePolicy::ScanResistant, ..first.clone() },
        ),
        (
            "`when_full` is StopWriting, requested EvictBy(as they come)",
            Options { when_full: WhenFull::EvictBy(Eviction::new(&AsTheyCome)), ..first.clone() },
        ),
        ("`flush_bytes` is 67108864, requested 8", Options { flush_bytes: 8, ..first.clone() }),
        (
            "`flush_interval` is 3600s, requested 1s",
            Options { flush_interval: Duration::from_secs(1), ..first.clone() },
        ),
        (
            "`write_buffer_bytes` is 268435456, requested 9",
            Options { write_buffer_bytes: 9, ..first.clone() },
        ),
        ("`refresh_every` is 0ns, requested 3600s", Options { refresh_every: hour, ..first.clone() }),
        ("`gc_grace` is 60s, requested 3600s", Options { gc_grace: hour, ..first.clone() }),
    ];
    for (expected, options) in others {
        let error = Store::open(dir.path(), spec("224"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
    // Without a limit, `when_full` has no effect, so a difference is no error.
    drop(store);
    let frozen = Options { when_full: WhenFull::EvictOldest, ..options() };
    let store = Store::open(dir.path(), spec("224"), &frozen).unwrap();
    assert!(std::sync::Arc::ptr_eq(&store, &open(dir.path())));
}

#[test]
fn an_error_names_its_cause_once_and_leads_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let error = tcx_store::modules(&file).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Io, format!("cannot list {}", file.display())));
    let cause = error.source().unwrap();
    assert!(cause.is::<std::io::Error>());
    assert_eq!(format!("{error:#}"), format!("{error}: {cause}"));
}
