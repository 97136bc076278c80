//! A table computes values once, replaces them only on request, and refuses those of another table, on disk and in memory.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tch::{Tensor, kind};
use tcx::{Cache, CacheableOutput, Error, I64Ids, Missing, Mode, Partial, Table, WhenFull};
use tcx_tests::place::Place;

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [2])]
    pooled: Tensor,
    caption: Vec<String>,
}

fn features(ids: &[&str]) -> Features {
    let lens: Vec<f32> = ids.iter().flat_map(|id| [id.len() as f32, 1.]).collect();
    let pooled = Tensor::from_slice(&lens).reshape([ids.len() as i64, 2]);
    Features { pooled, caption: ids.iter().map(|id| format!("about {id}")).collect() }
}

#[test]
fn values_are_computed_once_by_id_and_survive_the_process() {
    for place in Place::each() {
        let cache = place.open();
        let table = cache.table::<Features>("features_v1").unwrap();
        let mut asked = Vec::new();
        let mut get = |table: &Table<Features>, ids: &[&str]| {
            let computed = table.get_or_compute(ids, |missing: Missing<'_, &str>| {
                let ids: Vec<&str> = missing.ids().copied().collect();
                asked.push(ids.join(" "));
                Ok(features(&ids))
            });
            computed.unwrap()
        };
        for _ in 0..2 {
            let found = get(&table, &["a", "bb", "a"]);
            assert!(found.pooled.equal(&features(&["a", "bb", "a"]).pooled));
            assert_eq!(found.caption, ["about a", "about bb", "about a"]);
        }
        get(&table, &["ccc", "bb"]);
        let cache = place.reopen(cache);
        let table = cache.table::<Features>("features_v1").unwrap();
        get(&table, &["ccc", "bb", "a"]);
        assert_eq!(asked, ["a bb", "ccc"]);
    }
}

#[test]
fn put_keeps_what_is_there_and_replace_does_not() {
    for place in Place::each() {
        let cache = place.open();
        let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
        table.put(&["a", "c"], &vec![1, 3]).unwrap();
        table.put(&["a", "b", "c", "d"], &vec![-1, 2, -3, 4]).unwrap();
        assert_eq!(table.get(&["a", "b", "c", "d"]).unwrap(), Some(vec![1, 2, 3, 4]));
        table.replace(&["d", "a"], &vec![40, 10]).unwrap();
        table.replace(&["a"], &vec![11]).unwrap();
        assert_eq!(table.get(&["a", "b", "c", "d"]).unwrap(), Some(vec![11, 2, 3, 40]));
        table.invalidate(&["b"]).unwrap();
        assert_eq!(table.coverage(&["a", "b"]).unwrap().missing(), [1]);
        assert_eq!(table.get(&["a", "b"]).unwrap(), None);
        let cache = place.reopen(cache);
        let table = cache.with_mode(Mode::ReadOnly).table::<Vec<i64>>("numbers_v1").unwrap();
        assert_eq!(table.get(&["a", "c", "d"]).unwrap(), Some(vec![11, 3, 40]));
        table.replace(&["a"], &vec![12]).unwrap_err();
        table.put(&["e"], &vec![5]).unwrap_err();
    }
}

#[test]
fn what_a_full_folder_does_not_keep_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache.table::<Vec<i64>>("numbers_v1").unwrap().put(&["a"], &vec![1]).unwrap();
    cache.close().unwrap();
    let cache = Cache::builder().max_bytes(1, WhenFull::StopWriting).open(dir.path()).unwrap();
    let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
    // The size of the folder is measured before the first row.
    let computed = table.get_or_compute(&["b"], |_| Ok(vec![2])).unwrap();
    assert_eq!(computed, [2]);
    let error = table.replace(&["a"], &vec![3]).unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
    table.put(&["c"], &vec![4]).unwrap_err();
    assert_eq!(table.get(&["a"]).unwrap(), Some(vec![1]));
}

#[test]
fn mistakes_are_told_and_keep_nothing() {
    for place in Place::each() {
        let cache = place.open();
        let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
        let twice = table.put(&["a", "a"], &vec![1, 2]).unwrap_err();
        assert!(twice.to_string().contains("id \"a\" occurs more than once"), "{twice}");
        let two = table.put(&["a"], &vec![1, 2]).unwrap_err();
        assert_eq!(
            (two.module_id(), two.expected()),
            (Some("numbers_v1"), Some("one value per sample, 1 in all")),
            "{two}"
        );
        assert!(table.get_or_compute(&["a"], |_| Err(Error::loader("no such file"))).is_err());
        assert_eq!(table.get(&["a"]).unwrap(), None);
        table.put(&["a"], &vec![1]).unwrap();
        cache.flush().unwrap();
        let error = cache.table::<Vec<f32>>("numbers_v1").unwrap_err().to_string();
        assert!(error.contains("i64 [] in the cache, f32 [] in the code"), "{error}");
        let other = Table::<Vec<i64>>::builder("numbers_v1").metadata("version", "2");
        let error = other.open(&cache).unwrap_err().to_string();
        assert!(error.contains("`version`: absent from the cache, \"2\" in the code"), "{error}");
        let pooled = Tensor::ones([3, 2], kind::FLOAT_CPU);
        let wrong = Features { pooled, caption: vec![String::new(); 3] };
        let error = cache.table::<Features>("features_v1").unwrap().put(&["a", "b"], &wrong).unwrap_err();
        assert_eq!(error.field(), Some("pooled"), "{error}");
    }
}

#[test]
fn a_value_that_is_rejected_when_it_is_found_is_computed_again() {
    for place in Place::each() {
        let cache = place.open();
        cache.table::<Vec<i64>>("numbers_v1").unwrap().put(&["a", "b", "c"], &vec![1, -2, 3]).unwrap();
        let cache = place.reopen(cache);
        let positive = Table::<Vec<i64>>::builder("numbers_v1").validate(|numbers| {
            if numbers.iter().all(|number| *number > 0) {
                Ok(())
            } else {
                Err(Error::loader("a negative number"))
            }
        });
        let positive = positive.open(&cache).unwrap();
        let get = |ids: &[&str]| {
            let mut asked = Vec::new();
            let values = positive.get_or_compute(ids, |missing: Missing<'_, &str>| {
                asked.extend(missing.ids().map(|id| (*id).to_owned()));
                Ok(missing.ids().map(|id| 10 * id.len() as i64).collect())
            });
            (values.unwrap(), asked.join(" "))
        };
        assert_eq!(positive.get(&["a", "b"]).unwrap(), None);
        let before = positive.stats();
        assert_eq!(get(&["b", "a", "b", "dd"]), (vec![10, 1, 10, 20], "b dd".to_owned()));
        let stats = positive.stats();
        assert_eq!((stats.hits - before.hits, stats.misses - before.misses), (1, 3));
        let rejected = stats.miss_causes.rejected - before.miss_causes.rejected;
        assert_eq!((rejected, stats.rows_computed), (2, 2));
        assert_eq!(get(&["a", "b", "c", "dd"]), (vec![1, 10, 3, 20], String::new()));
        cache.flush().unwrap();
        assert_eq!(get(&["c", "b"]), (vec![3, 10], String::new()));
        let cache = place.reopen(cache);
        let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
        assert_eq!(
            table.get(&["a", "b", "c", "dd"]).unwrap(),
            Some(vec![1, 10, 3, 20]),
            "the other one is gone"
        );
    }
}

#[test]
fn only_what_was_computed_counts_as_computed() {
    for place in Place::each() {
        let cache = place.open();
        let table = cache.table::<Vec<i64>>("numbers_v1").unwrap();
        assert_eq!(table.get(&["a", "b"]).unwrap(), None);
        table.put(&["b"], &vec![2]).unwrap();
        table.get_or_compute(&["c"], |_| Err(Error::loader("no such file"))).unwrap_err();
        assert_eq!((table.stats().misses, table.stats().rows_computed), (3, 0));
        table.get_or_compute(&["a", "b"], |_| Ok(vec![1])).unwrap();
        let stats = table.stats();
        assert_eq!((stats.hits, stats.rows_computed, stats.compute_times.count), (1, 1, 1));
    }
}

/// Requests the values of `ids` with the second handle while the closure of the first runs, which returns `first`. Returns what
/// both requests return, and the ids that the second computed.
fn request_at_once(
    tables: [&Table<Vec<i64>>; 2],
    ids: [&[&str]; 2],
    first: tcx::Result<Vec<i64>>,
) -> (tcx::Result<Vec<i64>>, Vec<i64>, String) {
    let (begins, begun) = channel();
    let (calls, called) = channel::<()>();
    thread::scope(|scope| {
        let own = scope.spawn(move || {
            tables[0].get_or_compute(ids[0], |_| {
                begins.send(()).unwrap();
                // The other request is under way, and has time to call its closure if it does not wait.
                called.recv_timeout(Duration::from_millis(200)).expect_err("the other request computes, too");
                first
            })
        });
        begun.recv().unwrap();
        let mut asked = String::new();
        let other = tables[1].get_or_compute(ids[1], |missing| {
            drop(calls);
            asked = missing.ids().copied().collect::<Vec<_>>().join(" ");
            Ok(missing.ids().map(|id| 10 * id.len() as i64).collect())
        });
        (own.join().unwrap(), other.unwrap(), asked)
    })
}

#[test]
fn two_handles_of_a_table_compute_each_value_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Cache::open(dir.path()).unwrap().table::<Vec<i64>>("numbers_v1").unwrap();
    let (first, second) = (open(), open());
    let both = [&first, &second];
    let (own, other, asked) = request_at_once(both, [&["a", "b"], &["b", "c"]], Ok(vec![1, 2]));
    assert_eq!((own.unwrap(), other, asked.as_str()), (vec![1, 2], vec![2, 10], "c"));
    let (own, other, asked) = request_at_once(both, [&["d"], &["d"]], Err(Error::loader("no such file")));
    assert!(own.is_err(), "the other computes it");
    assert_eq!((other, asked.as_str()), (vec![10], "d"));
}

#[test]
fn two_handles_of_a_table_compute_a_rejected_value_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache.table::<Vec<i64>>("numbers_v1").unwrap().put(&["a", "b"], &vec![-1, 2]).unwrap();
    let positive = |numbers: &Vec<i64>| match numbers.iter().find(|number| **number < 0) {
        None => Ok(()),
        Some(number) => Err(Error::loader(format!("{number} is negative"))),
    };
    let open = || Table::builder("numbers_v1").validate(positive).open(&cache).unwrap();
    let (first, second) = (open(), open());
    let (own, other, asked) = request_at_once([&first, &second], [&["a"], &["a", "b"]], Ok(vec![1]));
    assert_eq!((own.unwrap(), other, asked.as_str()), (vec![1], vec![1, 2], ""));
}

/// Answers all prompts but the second.
fn ask(prompts: Missing<'_, &str>) -> (Vec<String>, Partial) {
    let ask = |(number, prompt): (usize, &&str)| {
        if number == 1 { Err("the server is busy") } else { Ok(format!("answer to {prompt}")) }
    };
    Partial::split(prompts.ids().enumerate().map(ask))
}

#[test]
fn values_that_were_computed_beside_failed_ids_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let answers = Cache::open(dir.path()).unwrap().table::<Vec<String>>("answers_v1").unwrap();
    answers.put(&["d"], &vec!["stored".to_owned()]).unwrap();
    let prompts = ["a", "d", "b", "c"];
    let error = answers.get_or_compute_partial(&prompts, |missing| Ok(ask(missing))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module `answers_v1`: computing the values of 1 of 3 samples failed: `b`; \
         the others were computed: repair these, or leave them out"
    );
    assert_eq!(error.load_failures()[0].to_string(), "`b`: the server is busy");
    assert_eq!(answers.coverage(&prompts).unwrap().missing(), [2]);
    let found = answers.get_or_compute_partial(&prompts, |missing| Ok(ask(missing))).unwrap();
    assert_eq!(found, ["answer to a", "stored", "answer to b", "answer to c"]);
    // All of them.
    let all = |missing: Missing<'_, &str>| {
        Ok(Partial::split(missing.ids().map(|id| Err::<String, _>(format!("{id} is no prompt")))))
    };
    let error = answers.get_or_compute_partial(&["e", "f"], all).unwrap_err();
    assert_eq!(error.load_failures().len(), 2);
    assert_eq!(answers.stats().rows_computed, 3);
}

#[test]
fn what_a_step_of_a_closure_could_load_is_not_stored_as_values() {
    let dir = tempfile::tempdir().unwrap();
    let answers = Cache::open(dir.path()).unwrap().table::<Vec<String>>("answers_v1").unwrap();
    let error = answers.get_or_compute(&["a", "gone"], |missing| {
        let read = |id: &&str| if *id == "gone" { Err("no such file") } else { Ok(format!("text of {id}")) };
        let texts = Partial::collect(missing.ids().map(read))?;
        Ok(texts.iter().map(|text| format!("answer to {text}")).collect())
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "module `answers_v1`: computing the values of 1 of 2 samples failed: `gone`; \
         the others were not stored: return them by `get_or_compute_partial`, which stores them"
    );
    assert_eq!(answers.coverage(&["a", "gone"]).unwrap().missing(), [0, 1]);
}

#[test]
fn put_returns_how_many_values_it_has_stored() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = Cache::open(dir.path()).unwrap().table::<Vec<i64>>("numbers_v1").unwrap();
    let put = |ids: &[&str], values| numbers.put(ids, &values).unwrap();
    assert_eq!(
        [put(&["a", "b"], vec![1, 2]), put(&["b", "c"], vec![-2, 3]), put(&["a"], vec![-1])],
        [2, 1, 0]
    );
    assert_eq!(numbers.get(&["a", "b", "c"]).unwrap(), Some(vec![1, 2, 3]));
}

#[test]
fn an_error_of_a_closure_names_the_table_and_what_failed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let table = Table::<Vec<i64>>::builder("numbers_v1").validate(|numbers| match numbers[..] {
        [0] => Err(Error::loader("0 is no number")),
        _ => Ok(()),
    });
    let table = table.open(&cache).unwrap();
    let said = |error: Error| format!("{error:#}");
    let failed = table.get_or_compute(&["a"], |_| Err(Error::loader("no answer"))).unwrap_err();
    assert_eq!(said(failed), "module `numbers_v1`: computing the values failed: no answer");
    let rejected = said(table.put(&["a"], &vec![0]).unwrap_err());
    assert_eq!(
        rejected,
        "module `numbers_v1`: storing the values of 1 of 1 samples failed: `a`; nothing was stored: correct these values, or \
         leave them out: `validate` rejects the value: 0 is no number"
    );
    let wrong = table.put(&["a", "b"], &vec![1]).unwrap_err().to_string();
    assert!(wrong.ends_with("; give a table one value of its type for each id"), "{wrong}");
}

#[test]
fn a_table_may_have_integer_ids() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Cache::open(dir.path()).unwrap();
    let squares = || Table::<Vec<i64>>::builder("squares_v1").keys::<I64Ids>().open(&open());
    let compute = |missing: Missing<'_, i64>| Ok(missing.ids().map(|id| id * id).collect());
    assert_eq!(squares().unwrap().get_or_compute(&[3, -4], compute).unwrap(), [9, 16]);
    assert_eq!(squares().unwrap().get(&[-4_i64]).unwrap(), Some(vec![16]));
    assert_eq!(open().table::<Vec<i64>>("squares_v1").unwrap_err().kind(), tcx::ErrorKind::Mismatch);
}

#[test]
fn values_of_a_table_are_invalidated_by_a_prefix_of_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let numbers = Cache::open(dir.path()).unwrap().table::<Vec<i64>>("numbers_v1").unwrap();
    let ids = ["train/a", "test/a", "train/b"];
    numbers.put(&ids, &vec![1, 2, 3]).unwrap();
    numbers.invalidate_prefix("train/").unwrap();
    assert_eq!(numbers.coverage(&ids).unwrap().missing(), [0, 2]);
}
