//! Reading only some fields of the outputs of a module.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::path::Path;

use tch::{Tensor, kind};
use tcx::{Cache, CacheableOutput, Cached, Extractor, Mode, Ragged, Result, cached_module};

#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [3])]
    pooled: Tensor,
    inner: Inner,
    #[tensor(f32, [_, 2], store = f16)]
    tokens: Ragged,
    pair: (Vec<bool>, Vec<Option<f32>>),
}

#[derive(CacheableOutput)]
struct Inner {
    caption: Vec<String>,
    #[tensor(i64, [_, _])]
    maps: Vec<Tensor>,
    label: Vec<Label>,
}

#[derive(CacheableOutput, Debug, PartialEq)]
enum Label {
    Odd,
    Even,
}

/// Some of them, in another order.
#[derive(CacheableOutput)]
struct Part {
    #[tensor(f32, [_, 2], store = f16)]
    tokens: Vec<Tensor>,
    inner: InnerPart,
}

#[derive(CacheableOutput)]
struct InnerPart {
    label: Vec<Label>,
    #[tensor(i64, [_, _])]
    maps: Vec<Tensor>,
}

#[cached_module(id = "parts_v1", key = i64)]
struct Parts;

impl Extractor for Parts {
    type Input = Vec<i64>;
    type Output = Features;

    fn forward(&self, samples: &Vec<i64>) -> Result<Features> {
        let ones = |dims: &[i64], number: i64| Tensor::ones(dims, kind::INT64_CPU) * number;
        let mut offsets = vec![0];
        offsets.extend(samples.iter().scan(0, |end, sample| {
            *end += sample % 3;
            Some(*end)
        }));
        let label = |&sample: &i64| if sample % 2 == 0 { Label::Even } else { Label::Odd };
        let third = |&sample: &i64| (sample % 3 > 0).then_some(sample as f32);
        Ok(Features {
            pooled: Tensor::from_slice(samples).unsqueeze(1).expand([-1, 3], false).to_kind(tch::Kind::Float),
            tokens: Ragged {
                values: ones(&[offsets[samples.len()], 2], 1).to_kind(tch::Kind::Float) / 3,
                offsets: Tensor::from_slice(&offsets),
            },
            inner: Inner {
                caption: samples.iter().map(ToString::to_string).collect(),
                maps: samples.iter().map(|&sample| ones(&[sample % 2, sample % 4], sample)).collect(),
                label: samples.iter().map(label).collect(),
            },
            pair: (samples.iter().map(|sample| *sample > 3).collect(), samples.iter().map(third).collect()),
        })
    }
}

fn open(dir: &Path) -> Cached<Parts> {
    Cache::open(dir).unwrap().module(Parts).unwrap()
}

fn check(part: &Part, samples: &[i64]) {
    for (row, &sample) in samples.iter().enumerate() {
        assert_eq!(part.inner.label[row], if sample % 2 == 0 { Label::Even } else { Label::Odd });
        let map = Tensor::ones([sample % 2, sample % 4], kind::INT64_CPU) * sample;
        assert!(part.inner.maps[row].equal(&map));
        let third = Tensor::full([sample % 3, 2], f64::from(tcx::f16::from_f32(1. / 3.)), kind::FLOAT_CPU);
        assert!(part.tokens[row].equal(&third));
    }
}

#[test]
fn some_fields_are_those_of_the_whole_however_they_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (samples, more) = (vec![4, 1, 7, 1], [7, 9, 4]);
    for computed in [3, 0] {
        let cached = open(dir.path());
        let part = cached.fields::<Part>().unwrap();
        for _ in 0..2 {
            check(&part.forward(&samples, &samples).unwrap(), &samples);
        }
        assert_eq!(cached.stats().rows_accepted, computed);
        // The missing rows were stored in full.
        assert!(cached.coverage(&samples).unwrap().is_complete());
        let whole = cached.fetch(&samples, |_| unreachable!("everything is there")).unwrap();
        assert_eq!(whole.inner.caption, ["4", "1", "7", "1"]);
        assert_eq!(whole.pair.1, [Some(4.), Some(1.), Some(7.), Some(1.)]);
        cached.flush().unwrap();
    }
    // Found on disk, in memory, and missing.
    let cached = open(dir.path());
    let scores = cached.fields::<Scores>().unwrap();
    let found = scores.fetch(&more, |missing| {
        assert_eq!(missing.positions(), [1]);
        Ok(vec![9])
    });
    assert_eq!(found.unwrap().pair.0, [true, true, true]);
    assert_eq!(cached.stats().misses, 1);
    let views = scores.view(2).forward(&[2], &vec![2]).unwrap();
    assert_eq!((views.pair.0, cached.stats().misses), (vec![false], 2));
}

/// The first of a pair.
#[derive(CacheableOutput)]
struct Scores {
    pair: (Vec<bool>,),
}

#[test]
fn every_mode_reads_some_fields() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    for (mode, stored) in
        [(Mode::Off, 0), (Mode::ReadOnly, 0), (Mode::ReadWrite, 2), (Mode::Recompute, 2), (Mode::ReadOnly, 2)]
    {
        let cached = cache.with_mode(mode).module(Parts).unwrap();
        check(&cached.fields::<Part>().unwrap().forward(&[4, 5], &vec![4, 5]).unwrap(), &[4, 5]);
        cached.flush().unwrap();
        assert_eq!(open(dir.path()).coverage(&[4, 5]).unwrap().found(), stored, "{mode:?}");
    }
}

/// The error for fields that the module does not have.
fn refusal<P: CacheableOutput>() -> String {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).fields::<P>().unwrap_err().to_string()
}

/// Not rounded.
#[derive(CacheableOutput)]
struct Exact {
    #[tensor(f16, [_, 2])]
    tokens: Ragged,
}

/// The same names, other numbers.
#[derive(CacheableOutput)]
enum Other {
    Even,
    Odd,
}

#[derive(CacheableOutput)]
struct Renamed {
    inner: Labels,
}

#[derive(CacheableOutput)]
struct Labels {
    label: Vec<Other>,
}

#[test]
fn fields_that_mean_something_else_are_refused() {
    let said = "module `parts_v1`: output field `tokens`: expected f16 [_, 2] (f32, stored as f16), found f16 [_, 2]; \
                declare the field in `identity::fields::Exact` as the output of the module does (`fields` at tests/tests/identity/fields.rs:";
    let refusal_of_exact = refusal::<Exact>();
    assert!(refusal_of_exact.starts_with(said), "{refusal_of_exact}");
    let said = "`inner.label`: expected u8 [] (Odd = 0, Even = 1), found u8 [] (Even = 0, Odd = 1)";
    assert!(refusal::<Renamed>().contains(said));
    let _ = (Other::Even, Other::Odd);
}
