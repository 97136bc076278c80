//! Outputs that differ from sample to sample, and floats that are stored as narrower ones: refused values, and their messages.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use tch::{Kind, Tensor, kind};
use tcx::{Cache, CacheableOutput, Error, Extractor, Ragged, Result, bf16, cached_module, f16};

#[derive(CacheableOutput)]
struct Tokens {
    #[tensor(f32, [_, 2])]
    tokens: Vec<Tensor>,
}

#[derive(CacheableOutput)]
struct RaggedTokens {
    #[tensor(f32, [_, 2])]
    tokens: Ragged,
}

#[derive(CacheableOutput)]
struct Maybe {
    #[tensor(i64, [3])]
    boxes: Vec<Option<Tensor>>,
}

/// The parts of the error when a table refuses the values.
fn refusal<T: CacheableOutput>(ids: &[&str], values: &T) -> (String, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let error = Cache::open(dir.path()).unwrap().table::<T>("t_v1").unwrap().put(ids, values).unwrap_err();
    let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
    (part(error.field()), part(error.expected()), part(error.found()))
}

fn said(field: &str, expected: &str, found: &str) -> (String, String, String) {
    (field.to_owned(), expected.to_owned(), found.to_owned())
}

#[test]
fn a_tensor_of_another_rank_size_or_dtype_is_named_with_its_sample() {
    let zeros = |dims: &[i64]| Tensor::zeros(dims, kind::FLOAT_CPU);
    let of = |second: Tensor| Tokens { tokens: vec![zeros(&[4, 2]), second] };
    let expected = "f32 [_, 2]";
    let found = "f32 [4, 3] for sample 1 of the batch";
    assert_eq!(refusal(&["a", "b"], &of(zeros(&[4, 3]))), said("tokens", expected, found));
    let found = "f32 [2] for sample 1 of the batch";
    assert_eq!(refusal(&["a", "b"], &of(zeros(&[2]))), said("tokens", expected, found));
    let found = "i64 [4, 2] for sample 1 of the batch";
    let other = zeros(&[4, 2]).to_kind(Kind::Int64);
    assert_eq!(refusal(&["a", "b"], &of(other)), said("tokens", expected, found));
    let found = "an undefined tensor for sample 1 of the batch";
    assert_eq!(refusal(&["a", "b"], &of(Tensor::new())), said("tokens", expected, found));
    let counted = said("tokens", "one value per sample, 3 in all", "2");
    assert_eq!(refusal(&["a", "b", "c"], &of(zeros(&[0, 2]))), counted);
    let maybe = Maybe { boxes: vec![None, Some(Tensor::from_slice(&[1_i64, 2]))] };
    let found = said("boxes", "i64 [3]", "i64 [2] for sample 1 of the batch");
    assert_eq!(refusal(&["a", "b"], &maybe), found);
}

#[test]
fn offsets_that_do_not_fit_are_refused() {
    let of = |offsets: Tensor| RaggedTokens {
        tokens: Ragged { values: Tensor::zeros([3, 2], kind::FLOAT_CPU), offsets },
    };
    let expected = "offsets: i64 [3], ascending from 0 to 3";
    for (offsets, found) in [
        (Tensor::from_slice(&[0_i64, 1, 2]), "offsets: [0, 1, 2]"),
        (Tensor::from_slice(&[1_i64, 2, 3]), "offsets: [1, 2, 3]"),
        (Tensor::from_slice(&[0_i64, 4, 3]), "offsets: [0, 4, 3]"),
        (Tensor::from_slice(&[0_i64, -1, 3]), "offsets: [0, -1, 3]"),
        (Tensor::from_slice(&[0_i64, 3]), "offsets: i64 [2]"),
        (Tensor::from_slice(&[0_i32, 1, 3]), "offsets: i32 [3]"),
        (Tensor::new(), "offsets: an undefined tensor"),
    ] {
        assert_eq!(refusal(&["a", "b"], &of(offsets)), said("tokens", expected, found));
    }
    let values = Tensor::zeros([3], kind::FLOAT_CPU);
    let flat = RaggedTokens { tokens: Ragged { values, offsets: Tensor::from_slice(&[0_i64, 1, 3]) } };
    assert_eq!(refusal(&["a", "b"], &flat), said("tokens", "f32 [_, 2]", "f32 [3]"));
}

#[test]
fn ragged_samples_are_those_of_single_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let values = Tensor::arange(8, kind::FLOAT_CPU).view([2, 4]).tr();
    let offsets = Tensor::from_slice(&[0_i64, 1, 1, 4]);
    let cache = Cache::open(dir.path()).unwrap();
    let table = cache.table::<RaggedTokens>("t_v1").unwrap();
    let values = values.set_requires_grad(true);
    table.put(&["a", "b", "c"], &RaggedTokens { tokens: Ragged { values, offsets } }).unwrap();
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let tokens = cache.table::<Tokens>("t_v1").unwrap().get(&["c", "b", "a"]).unwrap().unwrap().tokens;
    let sizes: Vec<_> = tokens.iter().map(Tensor::size).collect();
    assert_eq!(sizes, [[3, 2], [0, 2], [1, 2]]);
    let flat = |tensor: &Tensor| Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap();
    assert_eq!((flat(&tokens[0]), flat(&tokens[2])), (vec![1., 5., 2., 6., 3., 7.], vec![0., 4.]));
    // The other direction, in another order.
    let table = cache.table::<RaggedTokens>("u_v1").unwrap();
    table.put(&["x"], &RaggedTokens { tokens: joined(&tokens[..1]) }).unwrap();
    let ragged = cache.table::<RaggedTokens>("t_v1");
    let ragged = ragged.unwrap().get(&["b", "c", "c"]).unwrap().unwrap().tokens;
    assert_eq!(Vec::<i64>::try_from(&ragged.offsets).unwrap(), [0, 0, 3, 6]);
    assert_eq!(flat(&ragged.values), [flat(&tokens[0]), flat(&tokens[0])].concat());
}

fn joined(tensors: &[Tensor]) -> Ragged {
    let ends = tensors.iter().scan(0, |end, tensor| {
        *end += tensor.size()[0];
        Some(*end)
    });
    let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
    Ragged { values: Tensor::cat(tensors, 0), offsets: Tensor::from_slice(&offsets) }
}

#[derive(CacheableOutput)]
struct Rounded {
    #[tensor(f32, [3], store = f16)]
    half: Tensor,
    #[tensor(f32, [_], store = bf16)]
    brain: Vec<Tensor>,
}

#[cached_module(id = "rounds_v1")]
struct Rounds;

impl Extractor for Rounds {
    type Input = Tensor;
    type Output = Rounded;

    fn forward(&self, inputs: &Tensor) -> Result<Rounded> {
        let brain = (0..inputs.size()[0]).map(|sample| inputs.get(sample)).collect();
        Ok(Rounded { half: inputs.shallow_clone(), brain })
    }
}

#[test]
fn what_is_computed_is_rounded_as_what_is_found_will_be() {
    let dir = tempfile::tempdir().unwrap();
    let floats = [1. + 1. / 2048., 70_000., 1e-9, -0.1, f32::NAN, 1. / 3.];
    let inputs = Tensor::from_slice(&floats).view([2, 3]);
    // The bits of a NaN after rounding depend on the rounding code.
    let number = |x: f32| if x.is_nan() { None } else { Some(x.to_bits()) };
    let half = floats.map(|x| number(f16::from_f32(x).to_f32()));
    let brain = floats.map(|x| number(bf16::from_f32(x).to_f32()));
    let mut bits = Vec::new();
    let cache = Cache::open(dir.path()).unwrap();
    let rounds = cache.module(Rounds).unwrap();
    for _ in 0..2 {
        let found = rounds.forward(&["a", "b"], &inputs).unwrap();
        let flat = |tensor: &Tensor| Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap();
        let all = [flat(&found.half), flat(&Tensor::cat(&found.brain, 0))];
        assert_eq!(all[0].iter().copied().map(number).collect::<Vec<_>>(), half);
        assert_eq!(all[1].iter().copied().map(number).collect::<Vec<_>>(), brain);
        bits.push(all.concat().into_iter().map(f32::to_bits).collect::<Vec<_>>());
        rounds.flush().unwrap();
    }
    assert_eq!(bits[0], bits[1], "bit for bit, NaN too");
    // The overflow of the first row, NaN in the second.
    assert_eq!((rounds.stats().hits, rounds.stats().non_finite_rows), (2, 2));
}

#[derive(CacheableOutput)]
struct Exact {
    #[tensor(f16, [3])]
    half: Tensor,
    #[tensor(bf16, [_])]
    brain: Vec<Tensor>,
}

#[test]
fn how_a_field_is_stored_is_part_of_the_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let table = cache.table::<Rounded>("t_v1").unwrap();
    let values = Rounds.forward(&Tensor::ones([1, 3], kind::FLOAT_CPU)).unwrap();
    table.put(&["a"], &values).unwrap();
    cache.close().unwrap();
    let error: Error = Cache::open(dir.path()).unwrap().table::<Exact>("t_v1").unwrap_err();
    for said in [
        "`Output.half`: f32, stored as f16 in the cache, absent from the code",
        "`Output.brain`: f32, stored as bf16 in the cache, absent from the code",
    ] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// A row for each sample, padded to the longest of the batch.
#[cached_module(id = "pads_v1")]
struct Pads;

impl Extractor for Pads {
    type Input = Vec<i64>;
    type Output = Tokens;

    fn forward(&self, lengths: &Vec<i64>) -> Result<Tokens> {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let tokens = lengths.iter().map(|_| Tensor::zeros([longest, 2], kind::FLOAT_CPU)).collect();
        Ok(Tokens { tokens })
    }
}

#[test]
fn padding_to_the_longest_sample_of_a_batch_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let pads = Cache::open(dir.path()).unwrap().module(Pads).unwrap();
    let error = pads.forward(&["a", "b"], &vec![3, 5]).map(drop).unwrap_err().to_string();
    assert!(error.contains("field `tokens` has 10 and 6 elements"), "{error}");
}

#[cached_module(id = "thresholds_v1")]
struct Thresholds;

impl Extractor for Thresholds {
    type Input = Vec<f32>;
    type Output = (Vec<Option<f32>>, Vec<Option<String>>);

    fn forward(&self, scores: &Vec<f32>) -> Result<Self::Output> {
        let kept = |&score: &f32| (score > 0.5).then_some(score);
        let named = scores.iter().map(|score| kept(score).map(|score| score.to_string()));
        Ok((scores.iter().map(kept).collect(), named.collect()))
    }
}

#[test]
fn absent_values_are_no_numbers_to_count() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(Thresholds).unwrap().reject_non_finite();
    for _ in 0..2 {
        let (scores, names) = cached.forward(&["a", "b", "c"], &vec![0.75, f32::NAN, 0.25]).unwrap();
        assert_eq!(scores, [Some(0.75), None, None]);
        assert_eq!(names, [Some("0.75".to_owned()), None, None]);
    }
    assert_eq!((cached.stats().hits, cached.stats().non_finite_rows), (3, 0));
}
