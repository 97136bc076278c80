//! Random batches: with repeated, found and missing samples, with one or none, with inputs in memory or from a loader. The
//! cache returns what the module returns, and computes each sample once.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use tch::{Kind, Tensor};
use tcx::{Batch, Cache, CacheableOutput, Cached, D2, ErrorKind, Extractor, Missing, Typed, cached_module};
use tcx_tests::bits::{Parts, bits, tensor};
use tcx_tests::place::Place;

#[cached_module(
    id = "random_v1",
    output(pooled: tensor(f32, [7]), tokens: Typed<tcx::f16, D2<3, 2>>, caption: Vec<String>, score: Vec<f64>,
        corner: Vec<[[i32; 2]; 2]>, parity: Vec<Parity>, image: Vec<Vec<u8>>, maybe: Vec<Option<String>>,
        odd: Vec<Option<Parity>>, pieces: tensor(f32, [_, 2], store = bf16))
)]
struct Random;

#[derive(CacheableOutput, Debug)]
enum Parity {
    Odd,
    Even = 300,
}

impl Extractor for Random {
    type Input = (Tensor, Vec<String>);
    type Output = RandomOutput;

    fn forward(&self, (seeds, names): &Self::Input) -> tcx::Result<RandomOutput> {
        let score = Vec::try_from(seeds * 3)?;
        let some = |name: &String| (!name.len().is_multiple_of(3)).then(|| name.clone());
        let samples: Vec<i64> = Vec::try_from(seeds)?;
        let samples = samples.into_iter();
        Ok(RandomOutput {
            pooled: bits(seeds, &[7], Kind::Float),
            tokens: bits(&(seeds + 5), &[3, 2], Kind::Half).into(),
            caption: names.iter().map(|name| format!("of {name}")).collect(),
            score,
            corner: samples.clone().map(|sample| [[sample as i32, 1], [-sample as i32, 2]]).collect(),
            parity: samples.clone().map(parity).collect(),
            image: names.iter().map(|name| name.clone().into_bytes()).collect(),
            maybe: names.iter().map(some).collect(),
            odd: samples.clone().map(|sample| (sample % 2 == 1).then(|| parity(sample))).collect(),
            pieces: samples
                .map(|sample| Tensor::arange(sample % 4 * 2, tch::kind::FLOAT_CPU).view([sample % 4, 2]))
                .collect(),
        })
    }
}

fn parity(sample: i64) -> Parity {
    if sample % 2 == 0 { Parity::Even } else { Parity::Odd }
}

fn name(sample: i64) -> String {
    // Of several lengths.
    format!("{}{sample}", "sample/".repeat(sample as usize % 4))
}

fn inputs(samples: &[i64]) -> (Tensor, Vec<String>) {
    (Tensor::from_slice(samples), samples.iter().map(|&sample| name(sample)).collect())
}

/// One step of a program.
#[derive(Clone, Debug)]
enum Step {
    Forward(Vec<i64>),
    Fetch(Vec<i64>),
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let batch = prop_oneof![
        1 => Just(Vec::new()),
        2 => proptest::collection::vec(0..40_i64, 1),
        6 => proptest::collection::vec(0..40_i64, 2..20),
        // Few samples, so that they repeat.
        3 => proptest::collection::vec(0..4_i64, 2..20),
    ];
    prop_oneof![
        5 => batch.clone().prop_map(Step::Forward),
        5 => batch.prop_map(Step::Fetch),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

struct Program<'a> {
    place: &'a Place,
    cached: Cached<Random>,
    computed: BTreeSet<i64>,
}

fn open(place: &Place) -> Cached<Random> {
    place.open().module(Random).unwrap()
}

impl<'a> Program<'a> {
    fn new(place: &'a Place) -> Self {
        Self { place, cached: open(place), computed: BTreeSet::new() }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Forward(samples) => {
                self.batch(samples, |cached, ids, _| cached.forward(ids, &inputs(samples)).unwrap());
            }
            Step::Fetch(samples) => self.batch(samples, |cached, ids, missing| {
                let load = |asked: Missing<'_, String>| {
                    assert_eq!(asked.positions(), missing);
                    let samples: Vec<i64> = asked.positions().iter().map(|&at| samples[at]).collect();
                    assert_eq!(asked.ids().cloned().collect::<Vec<_>>(), inputs(&samples).1);
                    Ok(inputs(&samples))
                };
                cached.fetch(ids, load).unwrap()
            }),
            Step::Flush => self.cached.flush().unwrap(),
            Step::Reopen => {
                self.cached.flush().unwrap();
                self.cached = open(self.place);
            }
        }
    }

    /// Requests a batch; the samples at some positions are missing.
    fn batch(
        &mut self,
        samples: &[i64],
        ask: impl FnOnce(&Cached<Random>, &[String], &[usize]) -> RandomOutput,
    ) {
        let before = self.cached.stats().rows_accepted;
        let missing: Vec<usize> =
            (0..samples.len()).filter(|&at| self.computed.insert(samples[at])).collect();
        let (_, ids) = inputs(samples);
        let found = ask(&self.cached, &ids, &missing);
        assert_eq!(self.cached.stats().rows_accepted - before, missing.len() as u64, "each is computed once");
        let expected = Random.forward(&inputs(samples)).unwrap();
        assert!(parts(&found) == parts(&expected), "{samples:?}");
    }
}

fn parts(output: &RandomOutput) -> Vec<(String, Vec<u8>)> {
    let RandomOutput { pooled, tokens, caption, score, corner, parity, image, maybe, odd, pieces } = output;
    let others = (format!("{corner:?} {parity:?} {image:?} {maybe:?} {odd:?}"), Vec::new());
    let pieces = pieces.iter().map(tensor).collect();
    [vec![tensor(pooled), others], tokens.parts(), caption.parts(), score.parts(), pieces].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cached_module_is_its_module(steps in proptest::collection::vec(step(), 1..16)) {
        for place in Place::each() {
            let mut program = Program::new(&place);
            for step in &steps {
                program.run(step);
            }
        }
    }
}

/// Texts in one buffer, with the end of each.
#[derive(Default)]
struct Joined {
    text: String,
    ends: Vec<usize>,
}

impl Joined {
    fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut joined = Self::default();
        for text in texts {
            joined.text.push_str(text);
            joined.ends.push(joined.text.len());
        }
        joined
    }

    fn text(&self, sample: usize) -> &str {
        let start = sample.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[sample]]
    }
}

impl Batch for Joined {
    fn rows(&self) -> tcx::Result<usize> {
        Ok(self.ends.len())
    }

    fn select(&self, rows: &[usize]) -> tcx::Result<Self> {
        Ok(Self::of(rows.iter().map(|&row| self.text(row))))
    }

    fn is_same(&self, a: usize, b: usize) -> Option<bool> {
        Some(self.text(a) == self.text(b))
    }
}

#[cached_module(id = "joined_v1")]
struct Splits;

impl Extractor for Splits {
    type Input = Joined;
    type Output = Vec<String>;

    fn forward(&self, texts: &Joined) -> tcx::Result<Vec<String>> {
        Ok((0..texts.rows()?).map(|sample| texts.text(sample).to_owned()).collect())
    }
}

#[test]
fn a_batch_of_a_user_s_own_type_is_divided_into_samples_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::builder().refuse_repeated_ids(true).open(dir.path()).unwrap();
    let splits = cache.module(Splits).unwrap();
    assert_eq!(splits.forward(&["b", "a"], &Joined::of(["bb", "a"])).unwrap(), ["bb", "a"]);
    // The inputs of stored rows are not used.
    let mixed = splits.forward(&["c", "a", "b", "c"], &Joined::of(["ccc", "", "-", "ccc"])).unwrap();
    assert_eq!(
        (mixed, splits.stats().rows_accepted),
        (["ccc", "a", "bb", "ccc"].map(str::to_owned).to_vec(), 3)
    );
    let error = splits.forward(&["d", "d"], &Joined::of(["d", "another"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidBatch, "{error}");
}
