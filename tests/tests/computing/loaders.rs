//! Loaders: the ids that they get, the errors that they return, and samples that fail alone.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::error::Error as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tcx::{
    Cache, Cached, ErrorKind, Extractor, Id, Missing, Mode, Partial, Result, StringIds, cached_module,
};

/// The length of each text.
#[cached_module(id = "loader_lengths_v1")]
struct Lengths {}

impl Extractor for Lengths {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, texts: &Vec<String>) -> Result<Vec<i64>> {
        Ok(texts.iter().map(|text| text.len() as i64).collect())
    }
}

fn open(dir: &Path) -> Arc<Cached<Lengths>> {
    Arc::new(Cache::open(dir.join("cache")).unwrap().module(Lengths {}).unwrap())
}

/// A directory with the texts `0` to `n`, each as long as its number, without those of `gone`.
fn texts(n: usize, gone: &[usize]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for number in (0..n).filter(|number| !gone.contains(number)) {
        fs::write(dir.path().join(number.to_string()), "x".repeat(number)).unwrap();
    }
    dir
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|number| number.to_string()).collect()
}

fn load(dir: &Path, missing: Missing<'_, impl Id<StringIds>>) -> Result<Vec<String>> {
    // I/O errors need no conversion.
    missing.str_ids().map(|name| Ok(fs::read_to_string(dir.join(name))?)).collect()
}

#[test]
fn one_loader_serves_every_type_of_string() {
    let dir = texts(6, &[]);
    let lengths = open(dir.path());
    let load_owned = |missing: Missing<'_, String>| load(dir.path(), missing);
    let ids = names(6);
    assert_eq!(lengths.fetch(&ids[..2], load_owned).unwrap(), [0, 1]);
    let borrowed: Vec<&String> = ids[2..4].iter().collect();
    assert_eq!(lengths.fetch(&borrowed, |missing| load(dir.path(), missing)).unwrap(), [2, 3]);
    assert_eq!(lengths.fetch(&["4", "0"], |missing| load(dir.path(), missing)).unwrap(), [4, 0]);
    let error = lengths.fetch(&["gone"], |missing| load(dir.path(), missing)).unwrap_err();
    assert!(error.kind() == ErrorKind::Loader && error.source().unwrap().is::<io::Error>());
}

#[test]
fn samples_that_fail_are_named_and_the_others_are_stored() {
    let dir = texts(20, &[3, 7]);
    let ids = names(20);
    let load = |missing: Missing<'_, String>| {
        Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    };
    let expected = "module `loader_lengths_v1`: loading the inputs of 2 of 20 samples failed: `3`, `7`; \
                    the others were computed: repair these, or leave them out";
    let lengths = open(dir.path());
    let error = lengths.fetch(&ids, load).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.kind(), ErrorKind::Loader);
    let failed: Vec<_> = error.load_failures().iter().map(|failure| failure.id().to_owned()).collect();
    assert_eq!(failed, ["3", "7"]);
    assert!(error.load_failures()[1].error().is::<io::Error>());
    assert!(error.source().unwrap().is::<io::Error>(), "the cause of the first");
    assert_eq!(lengths.coverage(&ids).unwrap().missing(), [3, 7]);
    assert_eq!(lengths.stats().misses, 20);
    // Repaired.
    fs::write(dir.path().join("3"), "xxx").unwrap();
    fs::write(dir.path().join("7"), "x".repeat(7)).unwrap();
    assert_eq!(lengths.fetch(&ids, load).unwrap(), (0..20).collect::<Vec<i64>>());

    // Of a list, what is before the batch that failed and what could be loaded of it.
    let lengths = lengths.view(1);
    let fails = |missing: Missing<'_, String>| {
        let mut partial = Partial::new();
        partial.fail(1, "as asked");
        partial.finish(missing.ids().skip(1).map(|_| "one".to_owned()).collect::<Vec<_>>())
    };
    let error = lengths.warming().workers(2).run(&ids, fails).unwrap_err();
    assert_eq!(error.load_failures()[0].to_string(), "`1`: as asked");
    assert_eq!(lengths.coverage(&ids).unwrap().missing(), [1]);
}

/// The samples that are named, once those of `texts` but for `gone` were asked for in a loader of `lengths` by `inner`.
fn named_by_an_outer_loader(
    lengths: &Cached<Lengths>,
    inner: impl FnOnce(Missing<'_, String>) -> Result<Vec<String>>,
) -> (String, Vec<String>) {
    let error = lengths.fetch(&names(6), inner).unwrap_err();
    let failed = error.load_failures().iter().map(|failure| failure.id().to_owned()).collect();
    (error.to_string(), failed)
}

#[test]
fn what_a_table_in_a_loader_could_load_is_not_taken_for_the_inputs_of_the_module() {
    let dir = texts(6, &[4]);
    let lengths = open(dir.path());
    let raw = Cache::open(dir.path().join("cache")).unwrap().table::<Vec<String>>("raw_texts_v1").unwrap();
    let read = |missing: Missing<'_, &String>| {
        Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    };
    let cleaned = |missing: Missing<'_, String>| {
        let raw = raw.get_or_compute(&missing.ids().collect::<Vec<_>>(), read)?;
        Ok(raw.iter().map(|text| format!("<{text}>")).collect::<Vec<_>>())
    };
    let (message, failed) = named_by_an_outer_loader(&lengths, cleaned);
    let expected = "module `raw_texts_v1`: computing the values of 1 of 6 samples failed: `4`; \
                    the others were not stored: return them by `get_or_compute_partial`, which stores them";
    assert_eq!((message.as_str(), failed), (expected, vec!["4".to_owned()]));
    assert_eq!(lengths.coverage(&names(6)).unwrap().missing().len(), 6, "nothing is computed from raw texts");
    fs::write(dir.path().join("4"), "xxxx").unwrap();
    assert_eq!(lengths.fetch(&names(6), cleaned).unwrap(), [2, 3, 4, 5, 6, 7]);
}

#[test]
fn samples_that_fail_in_a_loader_of_a_loader_keep_their_names() {
    let dir = texts(6, &[4]);
    let lengths = open(dir.path());
    let cache = Cache::open(dir.path().join("other")).unwrap();
    let upstream = cache.module(Lengths {}).unwrap();
    let read = |missing: Missing<'_, String>| {
        Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    };
    // Some are stored there, so the loader of the loader has other places.
    upstream.fetch(&names(3), read).unwrap();
    let (message, failed) = named_by_an_outer_loader(&lengths, |missing| {
        let ids: Vec<String> = missing.ids().cloned().collect();
        Ok(upstream.fetch(&ids, read)?.iter().map(ToString::to_string).collect())
    });
    assert!(message.contains("1 of 3 samples failed: `4`; the others were computed"), "{message}");
    assert_eq!(failed, ["4"]);
    assert_eq!(upstream.coverage(&names(6)).unwrap().missing(), [4]);
    assert_eq!(lengths.coverage(&names(6)).unwrap().missing().len(), 6);
}

#[test]
fn inputs_of_another_type_than_the_module_takes_are_not_computed_and_the_error_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = open(dir.path());
    let (message, _) = named_by_an_outer_loader(&lengths, |missing| {
        let mut partial = Partial::new();
        partial.fail(0, "as asked");
        let bytes: Vec<Vec<u8>> = partial.finish(missing.ids().skip(1).map(|_| vec![1]).collect())?;
        Ok(bytes.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    });
    assert!(
        message.contains("the others were not computed, because the `Partial` has inputs of another type"),
        "{message}"
    );
    assert_eq!(lengths.coverage(&names(6)).unwrap().missing().len(), 6);
}

#[test]
fn many_samples_that_fail_are_counted_and_rows_that_are_not_stored_fail_the_same_way() {
    let dir = texts(1, &[]);
    let lengths =
        Cache::open(dir.path().join("cache")).unwrap().with_mode(Mode::Off).module(Lengths {}).unwrap();
    let load = |missing: Missing<'_, String>| {
        Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    };
    let error = lengths.fetch(&names(15), load).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("14 of 15 samples failed: `1`, `2`, ") && message.contains("`10` and 4 more; "),
        "{message}"
    );
    // All of them.
    let error = lengths.fetch(&["gone"], |missing| {
        Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    });
    assert_eq!(error.unwrap_err().load_failures().len(), 1);
}

#[test]
fn inputs_that_are_not_those_of_the_others_are_an_error() {
    let dir = texts(0, &[]);
    let lengths = open(dir.path());
    let error = lengths.fetch(&["a", "b", "c"], |_| {
        let mut partial = Partial::new();
        partial.fail(0, "as asked");
        partial.finish(vec!["one".to_owned()])
    });
    let error = error.unwrap_err();
    assert_eq!((error.expected(), error.found()), (Some("2"), Some("1")));
    assert_eq!(lengths.coverage(&["a", "b", "c"]).unwrap().missing().len(), 3, "nothing is stored");
}

#[test]
fn an_asynchronous_loader_may_fail_for_some_samples() {
    let dir = texts(3, &[1]);
    let lengths = open(dir.path());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let ids = names(3);
        let error = lengths.fetch_async(&ids, async |missing| {
            Partial::collect(missing.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
        });
        assert_eq!(error.await.unwrap_err().load_failures()[0].id(), "1");
        assert_eq!(lengths.coverage(&ids).unwrap().missing(), [1]);
    });
}

#[test]
fn samples_that_cannot_be_verified_are_named_and_the_others_are_verified() {
    let dir = texts(20, &[]);
    let lengths = open(dir.path());
    let ids = names(20);
    lengths.fetch(&ids, |missing| load(dir.path(), missing)).unwrap();
    let read = |asked: Missing<'_, String>| {
        Partial::collect(asked.str_ids().map(|name| fs::read_to_string(dir.path().join(name))))
    };
    assert!(lengths.verify(1., 0, read).unwrap().is_sound());
    fs::remove_file(dir.path().join("3")).unwrap();
    fs::write(dir.path().join("7"), "another text").unwrap();
    let report = lengths.verify(1., 0, read).unwrap();
    assert_eq!((report.checked, report.mismatches.len(), report.load_failures.len()), (19, 1, 1));
    assert_eq!((report.mismatches[0].id.as_str(), report.load_failures[0].id()), ("7", "3"));
    assert!(!report.is_sound());
    let shown = report.to_string();
    assert!(shown.contains("\n1 sample could not be loaded, and was not compared\n  `3`: "), "{shown}");
    // Not verified, so not sound.
    let all_gone = lengths
        .verify(1., 0, |asked| Partial::collect(asked.ids().map(|_| Err::<String, _>("the disk is away"))));
    let report = all_gone.unwrap();
    assert_eq!((report.checked, report.is_sound(), report.load_failures.len()), (0, false, 20));
    let error = lengths.verify(1., 0, |asked| load(dir.path(), asked)).unwrap_err();
    assert!(
        error.to_string().contains("loading the inputs of 20 samples failed, the first of which is `0`"),
        "{error}"
    );
}
