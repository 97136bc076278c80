//! Filling a cache ahead of its use, and computing a part of it again to compare.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::cell::RefCell;

use tch::Tensor;
use tcx::{Cache, Cached, Error, Extractor, Missing, Mode, Result, WhenFull, cached_module};

/// Three times the input: as it is, as a float, as a word.
#[cached_module(id = "triples_v1", key = i64, output(exact: Vec<i64>, close: tensor(f32, [2]), word: Vec<String>))]
struct Triples {}

impl Extractor for Triples {
    type Input = Vec<f64>;
    type Output = TriplesOutput;

    fn forward(&self, inputs: &Vec<f64>) -> Result<TriplesOutput> {
        let close: Vec<f32> = inputs.iter().flat_map(|x| [*x as f32 * 3., 1000.]).collect();
        let whole = |x: &f64| x.round() as i64 * 3;
        Ok(TriplesOutput {
            exact: inputs.iter().map(whole).collect(),
            close: Tensor::from_slice(&close).view([-1, 2]),
            word: inputs.iter().map(|x| whole(x).to_string()).collect(),
        })
    }
}

fn open(cache: &Cache) -> Cached<Triples> {
    cache.module(Triples {}).unwrap().batch_size(10)
}

fn numbers(missing: &Missing<'_, i64>) -> Vec<f64> {
    missing.ids().map(|id| *id as f64).collect()
}

#[test]
fn warming_computes_what_is_missing_in_batches_and_makes_it_durable() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let triples = open(&cache);
    triples.fetch(&[3, 4], |missing| Ok(numbers(&missing))).unwrap();
    let ids: Vec<i64> = (0..35).chain([2, 34]).collect();
    let batches = RefCell::new(Vec::new());
    let load = |missing: Missing<'_, i64>| {
        assert!(missing.ids().zip(missing.positions()).all(|(id, position)| ids[*position] == *id));
        batches.borrow_mut().push(missing.len());
        Ok(numbers(&missing))
    };
    let warmed = triples.warm(&ids, load).unwrap();
    assert_eq!((warmed.asked, warmed.computed, warmed.not_kept), (37, 33, 0));
    assert_eq!(*batches.borrow(), [10, 10, 10, 3]);
    assert_eq!(triples.stats().rows_sealed, 35, "without a flush by the caller");
    assert_eq!(triples.warm(&ids, |_| panic!("everything is there")).unwrap().computed, 0);
    // Views have rows of their own.
    assert_eq!(triples.view(1).warm(&[1, 2], |missing| Ok(numbers(&missing))).unwrap().computed, 2);
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    assert!(open(&cache).coverage(&ids).unwrap().is_complete());
}

#[test]
fn warming_that_was_interrupted_keeps_every_finished_batch_and_goes_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..100).collect();
    {
        let cache = Cache::open(dir.path()).unwrap();
        let triples = open(&cache);
        let interrupted = triples.warm(&ids, |missing| match missing.positions()[0] {
            0..30 => Ok(numbers(&missing)),
            _ => Err(Error::loader("interrupted")),
        });
        assert!(format!("{:#}", interrupted.unwrap_err()).contains("interrupted"));
        assert_eq!(triples.stats().rows_sealed, 30, "on disk, although it ended with an error");
    }
    let cache = Cache::open(dir.path()).unwrap();
    let mut asked = Vec::new();
    let load = |missing: Missing<'_, i64>| {
        asked.extend(missing.ids().copied());
        Ok(numbers(&missing))
    };
    assert_eq!(open(&cache).warm(&ids, load).unwrap().computed, 70);
    assert_eq!(asked, ids[30..]);
}

#[test]
fn warming_tells_what_could_not_be_kept_and_refuses_a_handle_that_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<i64> = (0..30).collect();
    open(&Cache::open(dir.path()).unwrap()).warm(&ids[..10], |missing| Ok(numbers(&missing))).unwrap();
    let cache = Cache::builder().max_bytes(1, WhenFull::StopWriting).open(dir.path()).unwrap();
    let triples = open(&cache);
    let warmed = triples.warm(&ids, |missing| Ok(numbers(&missing))).unwrap();
    assert_eq!((warmed.computed, warmed.not_kept), (20, 20), "the folder is full");
    for mode in [Mode::ReadOnly, Mode::Off] {
        let reader = open(&cache.with_mode(mode));
        let error = reader.warm(&ids, |_| panic!("for nothing")).unwrap_err();
        assert!(error.to_string().contains(&format!("mode {mode:?}")), "{error}");
    }
}

#[test]
fn a_sound_cache_is_verified_without_writing_and_the_seed_chooses_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let triples = open(&cache);
    let ids: Vec<i64> = (0..400).collect();
    triples.warm(&ids, |missing| Ok(numbers(&missing))).unwrap();
    triples.view(1).warm(&ids[..7], |missing| Ok(numbers(&missing))).unwrap();
    let chosen = |seed, fraction| {
        let mut chosen = Vec::new();
        let verified = triples.verify(fraction, seed, |asked| {
            assert!(asked.len() <= 10);
            chosen.extend(asked.ids().copied());
            Ok(numbers(&asked))
        });
        let verified = verified.unwrap();
        assert!(verified.is_sound() && verified.checked == chosen.len(), "{verified}");
        assert!(verified.largest_difference <= 0., "{verified}");
        chosen
    };
    let before = triples.stats();
    let some = chosen(1, 0.25);
    assert!((60..140).contains(&some.len()), "about a hundred: {}", some.len());
    assert_eq!(some, chosen(1, 0.25), "the same for the same seed");
    assert_ne!(some, chosen(2, 0.25));
    assert_eq!((chosen(1, 0.), chosen(1, 1.).len()), (Vec::new(), 400));
    assert_eq!(triples.view(1).verify(1., 0, |asked| Ok(numbers(&asked))).unwrap().checked, 7);
    assert_eq!(triples.stats(), before, "neither counted nor written");
    for fraction in [-0.1, 1.1, f64::NAN] {
        let error = triples.verify(fraction, 0, |_| panic!("no such part")).unwrap_err();
        assert_eq!(error.expected(), Some("a number from 0 to 1"));
    }
}

#[test]
fn rows_that_come_out_differently_are_named_and_small_differences_are_tolerated() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let triples = open(&cache);
    triples.forward(&[1, 2, 3], &vec![1., 2., 3.]).unwrap();
    let verify = |inputs: [f64; 3]| {
        let load = |asked: Missing<'_, i64>| Ok(asked.ids().map(|id| inputs[*id as usize - 1]).collect());
        triples.verify(1., 0, load).unwrap()
    };
    // Each row contains a thousand; the difference is about 1e-5 of it.
    let close = verify([1.003, 2., 3.]);
    assert!(close.is_sound() && close.checked == 3, "{close}");
    assert!((5e-6..2e-5).contains(&close.largest_difference), "{close}");
    let far = verify([1., 2.4, 4.]);
    let different: Vec<_> = far.mismatches.iter().map(|row| (row.id, row.field.as_str())).collect();
    assert_eq!(different, [(2, "close"), (3, "exact")]);
    assert!(far.largest_difference >= 1., "{far}");
    let said = far.to_string();
    assert!(
        said.starts_with(
            "2 of 3 stored rows differ from what the module computes; the largest difference is 1.0e0"
        ),
        "{said}"
    );
    assert!(said.contains("\n  2: field `close` is stored as 6 and computed as 7.2"), "{said}");
    assert_eq!(triples.forward(&[2], &vec![9.]).unwrap().exact, [6], "the cache is as it was");
}
