//! The ids of samples: of strings and bytes, from the inputs, from the content, with views; and malformed ones.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::sync::Mutex;

use tch::Tensor;
use tcx::{Cache, Cached, ContentId, Extractor, Id, Keyed, Result, cached_module};
use uuid::Uuid;

/// A module that returns the numbers it is given, for ids of some type.
macro_rules! echo {
    ($name:ident, $id:literal, $key:tt) => {
        #[cached_module(id = $id, key = $key)]
        struct $name;

        impl Extractor for $name {
            type Input = Tensor;
            type Output = Vec<i64>;

            fn forward(&self, inputs: &Tensor) -> Result<Vec<i64>> {
                Ok(Vec::try_from(inputs)?)
            }
        }
    };
}

echo!(Strings, "echo_strings_v1", String);
echo!(Bytes, "echo_bytes_v1", bytes);

fn strings(dir: &Path) -> Cached<Strings> {
    Cache::open(dir).unwrap().module(Strings).unwrap()
}

fn refusal<I: Id<<Strings as tcx::CachedModule>::Key>>(ids: &[I], inputs: &[i64]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let cached = strings(dir.path());
    let error = cached.forward(ids, &Tensor::from_slice(inputs)).unwrap_err().to_string();
    assert_eq!(cached.stats().rows_accepted, 0, "nothing is stored");
    error
}

#[test]
fn malformed_ids_are_refused_by_their_place_in_the_batch() {
    let said = "module `echo_strings_v1`: id 1 of the batch is empty: every sample needs an id of its own";
    assert_eq!(refusal(&["a", ""], &[1, 2]), said);
    let error = refusal(&["a".to_owned(), "b".repeat(4097)], &[1, 2]);
    assert!(error.starts_with("module `echo_strings_v1`: id 1 of the batch (`bbbb"), "{error}");
    assert!(error.ends_with("has 4097 bytes, expected at most 4096: use a hash of it"), "{error}");
    let said =
        "module `echo_strings_v1`: expected one id per sample, 2 in all, found 3; pass one id per sample";
    assert_eq!(refusal(&["a", "b", "c"], &[1, 2]), said);
}

#[test]
fn the_longest_id_and_an_id_of_any_characters_are_ids() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ["é".repeat(2048), "\0".to_owned(), " ".to_owned(), "a/../b\n".to_owned()];
    let cached = strings(dir.path());
    cached.forward(&ids, &Tensor::from_slice(&[1i64, 2, 3, 4])).unwrap();
    cached.flush().unwrap();
    drop(cached);
    let found = strings(dir.path()).fetch(&ids, |_| panic!("nothing is missing")).unwrap();
    assert_eq!(found, [1, 2, 3, 4]);
}

#[test]
fn an_id_that_is_repeated_is_one_sample_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().refuse_repeated_ids(false).open(dir.path()).unwrap();
    let cached = cache.module(Strings).unwrap();
    let found = cached.forward(&["a", "b", "a"], &Tensor::from_slice(&[1i64, 2, 3])).unwrap();
    assert_eq!(found, [1, 2, 1]);
    assert_eq!((cached.stats().rows_accepted, cached.stats().repeated_ids), (2, 1));
}

#[test]
fn an_id_that_is_repeated_with_another_input_is_refused_and_with_the_same_input_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().refuse_repeated_ids(true).open(dir.path()).unwrap();
    let cached = cache.module(Strings).unwrap();
    let ids = ["c.png", "a.png", "b.png", "a.png", "a.png"];
    let error = cached.forward(&ids, &Tensor::from_slice(&[0i64, 1, 2, 3, 1])).unwrap_err();
    let said = "module `echo_strings_v1`: the id \"a.png\" is at positions 1 and 3 of the batch, with different inputs: \
                one row cannot hold both; give each sample an id of its own, such as the whole path instead of the file name";
    assert_eq!((error.to_string().as_str(), error.kind()), (said, tcx::ErrorKind::InvalidBatch));
    assert_eq!((cached.stats().rows_accepted, cached.stats().repeated_ids), (0, 1), "nothing is stored");

    let same = Tensor::from_slice(&[0i64, 1, 2, 1, 1]);
    assert_eq!(cached.forward(&ids, &same).unwrap(), [0, 1, 2, 1, 1]);
    assert_eq!((cached.stats().rows_accepted, cached.stats().repeated_ids), (3, 1));
    // Rows that are stored are served: their inputs are not looked at.
    cached.forward(&ids, &Tensor::from_slice(&[9i64; 5])).unwrap();
    assert_eq!(cached.stats().repeated_ids, 1);
}

#[test]
fn a_repeated_id_is_an_error_by_itself_in_debug_builds_only() {
    let dir = tempfile::tempdir().unwrap();
    let done = strings(dir.path()).forward(&["a", "a"], &Tensor::from_slice(&[1i64, 2]));
    assert_eq!(done.is_err(), cfg!(debug_assertions));
}

echo!(Integers, "echo_integers_v1", i64);

#[test]
fn paths_and_integers_of_other_types_are_ids() {
    let dir = tempfile::tempdir().unwrap();
    let cached = strings(dir.path());
    let paths = [Path::new("train/a.png").to_owned(), "train/b.png".into()];
    cached.forward(&paths, &Tensor::from_slice(&[1i64, 2])).unwrap();
    assert_eq!(cached.fetch(&["train/b.png"], |_| panic!("the same id")).unwrap(), [2]);
    cached.invalidate(&[paths[0].as_path()]).unwrap();
    assert_eq!(cached.coverage(&paths).unwrap().missing(), [0]);

    let cached = Cache::open(dir.path()).unwrap().module(Integers).unwrap();
    cached.forward(&[7usize, 8], &Tensor::from_slice(&[1i64, 2])).unwrap();
    assert_eq!(cached.fetch(&[7u32, 8], |_| panic!("the same ids")).unwrap(), [1, 2]);
    // Literals need no suffix.
    assert_eq!(cached.fetch(&[8, 7], |_| panic!("the same ids")).unwrap(), [2, 1]);
    let error = cached.forward(&[7, u64::MAX], &Tensor::from_slice(&[1i64, 2])).unwrap_err().to_string();
    assert!(
        error.starts_with("module `echo_integers_v1`: the id 18446744073709551615 does not fit"),
        "{error}"
    );
}

#[test]
fn a_view_is_a_row_of_its_own_under_the_same_id() {
    let dir = tempfile::tempdir().unwrap();
    let cached = strings(dir.path());
    let ids = ["a", "b"];
    let input = |view: u32| Tensor::from_slice(&[1i64, 2]) * 10 * i64::from(view);
    for view in [0, 3, u32::MAX] {
        assert!(!cached.view(view).coverage(&ids).unwrap().is_complete());
        cached.view(view).forward(&ids, &input(view)).unwrap();
        assert!(cached.view(view).coverage(&ids).unwrap().is_complete());
    }
    cached.flush().unwrap();
    drop(cached);
    let cached = strings(dir.path());
    for view in [u32::MAX, 0, 3] {
        let found = cached.view(view).fetch(&["b"], |_| panic!("nothing is missing")).unwrap();
        assert_eq!(found, [20 * i64::from(view)]);
    }
    assert_eq!(cached.fetch(&["a"], |_| panic!("it is view 0")).unwrap(), [0]);
    assert!(!cached.view(1).coverage(&["a"]).unwrap().is_complete());
}

/// Derives the ids from the content of the inputs.
#[cached_module(id = "by_content_v1")]
struct ByContent;

impl Extractor for ByContent {
    type Input = Tensor;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Tensor) -> Result<Vec<i64>> {
        Ok(Vec::try_from(inputs.f_select(1, 0)?)?)
    }
}

impl Keyed for ByContent {
    type Id = ContentId;

    fn ids(input: &Tensor) -> Result<Vec<ContentId>> {
        ContentId::of_samples(input)
    }
}

#[test]
fn inputs_known_by_their_content_are_found_wherever_they_stand_and_noticed_when_edited() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(ByContent).unwrap();
    let batch = Tensor::from_slice(&[1i64, 2, 3, 4, 1, 2]).view([3, 2]);
    assert_eq!(cached.forward_keyed(&batch).unwrap(), [1, 3, 1]);
    assert_eq!(cached.stats().rows_accepted, 2, "two are the same");
    assert_eq!(cached.forward_keyed(&batch.narrow(0, 1, 2)).unwrap(), [3, 1]);
    assert_eq!(cached.stats().rows_accepted, 2);
    assert_eq!(cached.forward_keyed(&Tensor::from_slice(&[1i64, 5]).view([1, 2])).unwrap(), [1]);
    assert_eq!(cached.view(1).forward_keyed(&batch).unwrap(), [1, 3, 1]);
    assert_eq!(cached.stats().rows_accepted, 5, "the edited one, and another view of two");
}

/// Notes the texts that it is given.
#[cached_module(id = "keyed_partly_v1")]
struct KeyedPartly {
    #[tcx(assume_stateless)]
    seen: &'static Mutex<Vec<Vec<String>>>,
}

impl Extractor for KeyedPartly {
    type Input = (Vec<String>, Vec<String>);
    type Output = Vec<i64>;

    fn forward(&self, (_, texts): &Self::Input) -> Result<Vec<i64>> {
        self.seen.lock().unwrap().push(texts.clone());
        Ok(texts.iter().map(|text| text.len() as i64).collect())
    }
}

impl Keyed for KeyedPartly {
    type Id = String;

    fn ids((names, _): &Self::Input) -> Result<Vec<String>> {
        Ok(names.clone())
    }
}

#[test]
fn of_a_batch_that_holds_its_ids_only_what_is_missing_is_computed() {
    let dir = tempfile::tempdir().unwrap();
    let seen: &'static Mutex<Vec<Vec<String>>> = Box::leak(Box::default());
    let cached = Cache::open(dir.path()).unwrap().module(KeyedPartly { seen }).unwrap();
    let batch = |samples: &[(&str, &str)]| {
        let part = |part: fn(&(&str, &str)) -> String| samples.iter().map(part).collect::<Vec<_>>();
        (part(|sample| sample.0.to_owned()), part(|sample| sample.1.to_owned()))
    };
    assert_eq!(cached.forward_keyed(&batch(&[("a", "1"), ("b", "22")])).unwrap(), [1, 2]);
    // The check of the first batch computes a sample several times.
    seen.lock().unwrap().clear();
    let partly = batch(&[("c", "333"), ("b", "22"), ("d", "4444"), ("c", "333"), ("a", "1")]);
    assert_eq!(cached.forward_keyed(&partly).unwrap(), [3, 2, 4, 3, 1]);
    assert_eq!(*seen.lock().unwrap(), [["333", "4444"]]);
    assert_eq!((cached.stats().hits, cached.stats().rows_accepted), (2, 4));
    cached.flush().unwrap();
    assert_eq!(cached.forward_keyed(&partly).unwrap(), [3, 2, 4, 3, 1]);
    assert_eq!(cached.view(1).forward_keyed(&batch(&[("a", "55555")])).unwrap(), [5], "another view");
    assert_eq!(*seen.lock().unwrap(), [vec!["333", "4444"], vec!["55555"]]);
}

/// Returns another number of ids than inputs.
#[cached_module(id = "keyed_wrong_v1")]
struct KeyedWrong;

impl Extractor for KeyedWrong {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, inputs: &Vec<String>) -> Result<Vec<i64>> {
        Ok(vec![0; inputs.len()])
    }
}

impl Keyed for KeyedWrong {
    type Id = String;

    fn ids(_: &Vec<String>) -> Result<Vec<String>> {
        Ok(vec!["a".to_owned()])
    }
}

#[test]
fn ids_from_the_inputs_are_counted_too() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(KeyedWrong).unwrap();
    let error = cached.forward_keyed(&vec![String::new(); 2]).unwrap_err();
    let said =
        "module `keyed_wrong_v1`: expected one id per sample, 2 in all, found 1; pass one id per sample";
    assert_eq!(error.to_string(), said);
    let parts = (error.module_id(), error.expected(), error.found(), error.remedy());
    assert_eq!(
        parts,
        (
            Some("keyed_wrong_v1"),
            Some("one id per sample, 2 in all"),
            Some("1"),
            Some("pass one id per sample")
        )
    );
}

#[test]
fn content_ids_and_uuids_are_ids_where_bytes_are() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Bytes).unwrap();
    let content = ContentId::of_text("a cat");
    cached.forward(&[content], &Tensor::from_slice(&[1i64])).unwrap();
    let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef);
    cached.forward(&[uuid], &Tensor::from_slice(&[2i64])).unwrap();
    let found = cached.fetch(&[content.as_bytes()], |_| panic!("the same id")).unwrap();
    assert_eq!(found, [1]);
    let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    assert_eq!(cached.fetch(&[bytes], |_| panic!("its 16 bytes")).unwrap(), [2]);
}

#[test]
fn content_ids_are_ids_where_strings_are() {
    let dir = tempfile::tempdir().unwrap();
    let cached = strings(dir.path());
    let ids = ["a cat", "a dog"].map(ContentId::of_text);
    cached.forward(&ids, &Tensor::from_slice(&[1i64, 2])).unwrap();
    let text = ids[1].to_string();
    assert_eq!(cached.fetch(&[text], |_| panic!("the same id")).unwrap(), [2]);
}
