//! Stamps beside the ids: a source that was edited under an unchanged id is computed again, and its old row never served.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;
use std::process::Command;

use tch::{Kind, Tensor};
use tcx::{
    Cache, CacheBuilder, CacheableOutput, Cached, Compression, ContentId, Extractor, Keyed, Missing, Mode,
    ReadMode, Result, StampedTable, Table, Tuning, cached_module,
};
use tcx_tests::StampedEcho;

fn open(dir: &Path) -> Cached<StampedEcho> {
    Cache::open(dir).unwrap().module(StampedEcho {}).unwrap()
}

fn forward(echo: &Cached<StampedEcho>, ids: &[(i64, u64)], value: i64) -> Vec<i64> {
    echo.forward(ids, &vec![value; ids.len()]).unwrap()
}

#[test]
fn an_edited_source_is_computed_again_and_replaces_its_row() {
    let dir = tempfile::tempdir().unwrap();
    let echo = open(dir.path());
    assert_eq!(forward(&echo, &[(1, 1), (2, 1), (3, u64::MAX)], 10), [10; 3]);
    // In the write buffer.
    assert_eq!(forward(&echo, &[(1, 1), (2, 2), (3, u64::MAX), (2, 2)], 20), [10, 20, 10, 20]);
    echo.flush().unwrap();
    // In a segment.
    assert_eq!(forward(&echo, &[(1, 1), (2, 2), (3, 0)], 30), [10, 20, 30]);
    assert_eq!(echo.stats().miss_causes.outdated, 3);
    assert_eq!(forward(&echo, &[(3, 0), (2, 2), (1, 1)], 40), [30, 20, 10]);
    drop(echo);
    for _ in 0..2 {
        let echo = open(dir.path());
        assert_eq!(forward(&echo, &[(1, 1), (2, 2), (3, 0)], 50), [10, 20, 30]);
        assert_eq!(echo.stats().misses, 0);
        assert_eq!(echo.coverage(&[(1, 1), (2, 1), (3, u64::MAX), (1, 1)]).unwrap().missing(), [1, 2]);
    }
    let read_only = Cache::builder().mode(Mode::ReadOnly).open(dir.path()).unwrap();
    let read_only = read_only.module(StampedEcho {}).unwrap();
    assert_eq!(
        forward(&read_only, &[(1, 9), (2, 2)], 60),
        [60, 20],
        "it serves no row of another stamp either"
    );
    drop(read_only);
    assert_eq!(forward(&open(dir.path()), &[(1, 1), (2, 2)], 70), [10, 20]);
}

#[test]
fn many_edits_leave_the_newest_row_however_files_are_read() {
    let settings: [fn() -> CacheBuilder; 3] = [
        Cache::builder,
        || Cache::builder().tuning(Tuning::new().read_mode(ReadMode::Pread)),
        || Cache::builder().compression(Compression::Zstd),
    ];
    for settings in settings {
        let dir = tempfile::tempdir().unwrap();
        let cache = settings().open(dir.path()).unwrap();
        let echo = cache.module(StampedEcho {}).unwrap();
        // Enough rounds that segments are joined and changes are merged.
        for edit in 0..20 {
            let ids: Vec<(i64, u64)> = (0..40).map(|id| (id, if id % 2 == 0 { edit } else { 0 })).collect();
            let values = forward(&echo, &ids, edit as i64);
            let expected: Vec<i64> = (0..40).map(|id| if id % 2 == 0 { edit as i64 } else { 0 }).collect();
            assert_eq!(values, expected);
            if edit % 3 > 0 {
                echo.flush().unwrap();
            }
        }
        assert_eq!(echo.stats().rows_computed, 40 + 19 * 20);
        cache.close().unwrap();
        let echo = settings().open(dir.path()).unwrap().module(StampedEcho {}).unwrap();
        let ids: Vec<(i64, u64)> = (0..40).map(|id| (id, if id % 2 == 0 { 19 } else { 0 })).collect();
        assert_eq!(echo.prefetch(&ids).unwrap(), 40);
        assert!(echo.coverage(&ids).unwrap().is_complete());
    }
}

#[test]
fn processes_of_different_stamps_never_serve_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let stamper = |stamp: u64, value: i64| {
        let args = [stamp.to_string(), value.to_string()];
        Command::new(env!("CARGO_BIN_EXE_stamper")).arg(dir.path()).args(args).output().unwrap()
    };
    let said = |stamp, value| String::from_utf8(stamper(stamp, value).stdout).unwrap();
    let values = |value: i64| format!("{:?}", [value; 10]);
    assert_eq!(said(1, 100), format!("10 {}\n", values(100)));
    assert_eq!(said(2, 200), format!("10 {}\n", values(200)));
    assert_eq!(said(2, 999), format!("0 {}\n", values(200)));
    assert_eq!(said(1, 300), format!("10 {}\n", values(300)), "the other one has replaced it");
    // Two processes that both missed all rows write at once, while a third one reads.
    let echo = open(dir.path());
    std::thread::scope(|scope| {
        let writers = [(5, 500), (6, 600)].map(|(stamp, value)| scope.spawn(move || said(stamp, value)));
        let ids: Vec<(i64, u64)> = (0..10).map(|id| (id, 7)).collect();
        assert_eq!(forward(&echo, &ids, 700), [700; 10]);
        for (writer, value) in writers.into_iter().zip([500, 600]) {
            assert_eq!(writer.join().unwrap(), format!("10 {}\n", values(value)));
        }
    });
    for (stamp, value) in [(5, 500), (6, 600), (7, 700)] {
        let ids: Vec<(i64, u64)> = (0..10).map(|id| (id, stamp)).collect();
        let found = forward(&echo, &ids, -1);
        assert!(found.iter().all(|found| [value, -1].contains(found)), "{stamp}: {found:?}");
    }
}

#[derive(CacheableOutput)]
struct Sum {
    #[tensor(f32, [2])]
    pair: Tensor,
}

/// Texts whose stamp is a hash of their content.
#[cached_module(id = "stamped_texts_v1", stamp = bytes, output(pair: tensor(f32, [2]), length: Vec<i64>))]
struct Texts {}

impl Extractor for Texts {
    type Input = Vec<(String, String)>;
    type Output = TextsOutput;

    fn forward(&self, texts: &Self::Input) -> Result<TextsOutput> {
        let length: Vec<i64> = texts.iter().map(|(_, text)| text.len() as i64).collect();
        let pair = Tensor::from_slice(&length).to_kind(Kind::Float).unsqueeze(1).expand([-1, 2], false);
        Ok(TextsOutput { pair, length })
    }
}

impl Keyed for Texts {
    type Id = (String, ContentId);

    fn ids(texts: &Self::Input) -> Result<Vec<Self::Id>> {
        Ok(texts.iter().map(|(name, text)| (name.clone(), ContentId::of_text(text))).collect())
    }
}

#[test]
fn every_question_knows_stamps() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let texts = cache.module(Texts {}).unwrap();
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(texts.forward_keyed(&vec![text("a", "1"), text("b", "22")]).unwrap().length, [1, 2]);
    assert_eq!(texts.forward_keyed(&vec![text("a", "1"), text("b", "333")]).unwrap().length, [1, 3]);
    let other = |_: Missing<'_, (&str, ContentId)>| Ok(vec![text("b", "4444")]);
    let hash = ContentId::of_text;
    assert_eq!(texts.view(1).fetch(&[("b", hash("4444"))], other).unwrap().length, [4], "another view");
    assert_eq!(texts.fetch(&[("b", hash("333"))], |_| panic!("it is there")).unwrap().length, [3]);
    // Only some fields, in tensors that are allocated before the lookup.
    let sums = texts.fields::<Sum>().unwrap();
    for (held, expected) in [("333", 3.), ("55555", 5.), ("55555", 5.), ("1", 1.)] {
        let sum = sums.fetch(&[("a", hash("1")), ("b", hash(held))], |_| Ok(vec![text("b", held)])).unwrap();
        assert_eq!(Vec::<f32>::try_from(sum.pair.flatten(0, -1)).unwrap(), [1., 1., expected, expected]);
        texts.flush().unwrap();
    }
    let ids = [("a", hash("1")), ("b", hash("22")), ("c", hash(""))];
    let load = |missing: Missing<'_, (&str, ContentId)>| {
        Ok(missing.ids().map(|(name, _)| text(name, if *name == "b" { "22" } else { "" })).collect())
    };
    assert_eq!(texts.warm(&ids, load).unwrap().computed, 2);
    assert!(texts.coverage(&ids).unwrap().is_complete() && texts.prefetch(&ids).unwrap() == 3);
    let verified = texts.verify(1., 0, |asked| {
        let held =
            |id: &(String, Vec<u8>)| ["1", "22", ""].into_iter().find(|held| id.1 == hash(held).as_bytes());
        Ok(asked.ids().map(|id| text(&id.0, held(id).unwrap())).collect())
    });
    assert_eq!((verified.as_ref().unwrap().checked, verified.unwrap().is_sound()), (3, true));
    // Ids are invalidated whatever their stamps are.
    texts.invalidate(&["b"]).unwrap();
    texts.invalidate_where(|id| id == "c").unwrap();
    assert_eq!(texts.coverage(&ids).unwrap().missing(), [1, 2]);
    texts.invalidate_prefix("a").unwrap();
    assert_eq!(texts.coverage(&ids).unwrap().found(), 0);
}

#[test]
fn a_sample_has_one_stamp() {
    let dir = tempfile::tempdir().unwrap();
    let echo = open(dir.path());
    let error = echo.forward(&[(1, 1), (1, 2)], &vec![1, 2]).unwrap_err().to_string();
    let said = "module `stamped_echo_v1`: the id at position 1 of the batch is repeated with another stamp";
    assert!(error.starts_with(said), "{error}");
    let table: StampedTable<Vec<i64>, [u8]> = {
        let cache = Cache::open(dir.path()).unwrap();
        Table::builder("sizes_v1").stamped().open(&cache).unwrap()
    };
    let error = table.put(&[("a", vec![7; 4097])], &vec![1]).unwrap_err().to_string();
    assert!(error.contains("the stamp of the id at position 0 of the batch has 4097 bytes"), "{error}");
}

#[test]
fn a_table_computes_values_of_another_stamp_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let cache = Cache::open(dir.path()).unwrap();
        Table::<Vec<i64>>::builder("sizes_v1").stamped::<u64>().open(&cache).unwrap()
    };
    let table = open();
    let get = |table: &StampedTable<Vec<i64>>, ids: &[(&str, u64)], value: i64| {
        table.get_or_compute(ids, |missing| Ok(vec![value; missing.len()])).unwrap()
    };
    assert_eq!(get(&table, &[("a", 1), ("b", 1)], 10), [10, 10]);
    assert_eq!(get(&table, &[("a", 2), ("b", 1)], 20), [20, 10]);
    table.put(&[("b", 3), ("a", 2)], &vec![30, -1]).unwrap();
    assert_eq!(table.get(&[("a", 2), ("b", 3)]).unwrap(), Some(vec![20, 30]));
    assert_eq!(table.get(&[("b", 1)]).unwrap(), None);
    table.replace(&[("a", 4)], &vec![40]).unwrap();
    table.flush().unwrap();
    drop(table);
    let table = open();
    assert_eq!(table.coverage(&[("a", 4), ("b", 3), ("a", 4), ("c", 1)]).unwrap().missing(), [3]);
    assert_eq!(table.get(&[("a", 4), ("b", 3)]).unwrap(), Some(vec![40, 30]));
    table.invalidate(&["a"]).unwrap();
    assert_eq!(table.get(&[("a", 4)]).unwrap(), None);
    drop(table);
    let plain = Cache::open(dir.path()).unwrap().table::<Vec<i64>>("sizes_v1").unwrap_err().to_string();
    assert!(plain.contains("field `__stamp`: i64 [] in the cache, absent from the code"), "{plain}");
}

/// Takes the outputs of a module with stamps, and has none.
#[cached_module(id = "after_stamps_v1", key = i64)]
struct Unstamped {}

impl Extractor for Unstamped {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> Result<Vec<i64>> {
        Ok(x.clone())
    }
}

#[test]
fn a_module_without_stamps_after_one_with_stamps_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let echo = cache.module(StampedEcho {}).unwrap();
    let refused = cache.module_after(&echo, Unstamped {}).map(drop).unwrap_err().to_string();
    for part in ["`after_stamps_v1`", "have stamps, but its own ids have none", "write `stamp = u64`"] {
        assert!(refused.contains(part), "{refused}");
    }
}
