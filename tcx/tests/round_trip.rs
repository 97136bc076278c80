//! What is read back is what was computed, bit for bit: every dtype, every rank, and tensors of every make.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::marker::PhantomData;

use tch::{Device, IndexOp, Kind, Tensor};
use tcx::{
    Cache, CacheableOutput, Cached, D0, D1, D2, D3, D4, D5, Element, Extractor, Shape, Typed, bf16,
    cached_module, f16,
};

/// Returns what it is given.
#[cached_module(id = "echo_v1", key = i64)]
struct Echo<E, S> {
    declared: PhantomData<fn() -> (E, S)>,
}

impl<E: Element, S: Shape> Extractor for Echo<E, S> {
    type Input = Tensor;
    type Output = Typed<E, S>;

    fn forward(&self, input: &Tensor) -> tcx::Result<Typed<E, S>> {
        Ok(input.shallow_clone().into())
    }
}

fn echo<E: Element, S: Shape>(cache: &Cache) -> Cached<Echo<E, S>> {
    cache.module(Echo { declared: PhantomData }).unwrap()
}

/// The elements' bits. Comparing values would take two NaNs for different and two zeros for the same.
fn bits(tensor: &Tensor) -> Vec<u8> {
    let tensor = tensor.contiguous();
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

/// Rows of all kinds of bits: NaNs with payloads, infinities, zeros of both signs, subnormal numbers.
fn rows(size: &[i64], kind: Kind) -> Tensor {
    let len = size.iter().product::<i64>() as usize * kind.elt_size_in_bytes();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (state >> 60, kind) {
            (_, Kind::Bool) => (state >> 40) as u8 & 1,
            (0..4, _) => 0xff,
            (4..6, _) => 0,
            _ => (state >> 40) as u8,
        }
    };
    let bytes: Vec<u8> = (0..len).map(|_| byte()).collect();
    Tensor::from_data_size(&bytes, size, kind)
}

fn round_trip<E: Element, S: Shape>(dims: &[i64], kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let size = |rows: i64| [&[rows], dims].concat();
    let computed = rows(&size(6), kind);
    let cache = Cache::open(dir.path()).unwrap();
    let module = echo::<E, S>(&cache);
    assert_eq!(bits(&module.forward(&[0, 2, 4], &computed.i(0..3)).unwrap()), bits(&computed.i(0..3)));
    // Found and computed rows, interleaved.
    let order = Tensor::from_slice(&[3i64, 0, 4, 1, 5, 2]);
    let mixed = computed.index_select(0, &order);
    let served = module.forward(&[1, 0, 3, 2, 5, 4], &mixed).unwrap();
    assert_eq!((served.kind(), served.size()), (kind, size(6)));
    assert_eq!(bits(&served), bits(&mixed));
    cache.close().unwrap();
    // From the disk.
    let cache = Cache::open(dir.path()).unwrap();
    let module = echo::<E, S>(&cache);
    let served = module.fetch(&[0, 2, 4, 1, 3, 5], |_| panic!("every row is there")).unwrap();
    assert_eq!((served.kind(), served.size()), (kind, size(6)));
    assert_eq!(bits(&served), bits(&computed));
    // None.
    let none = module.fetch(&[] as &[i64], |_| panic!("nothing is missing")).unwrap();
    assert_eq!((none.kind(), none.size()), (kind, size(0)));
}

fn every_rank<E: Element>(kind: Kind) {
    round_trip::<E, D0>(&[], kind);
    round_trip::<E, D1<7>>(&[7], kind);
    round_trip::<E, D2<3, 5>>(&[3, 5], kind);
    round_trip::<E, D3<2, 1, 3>>(&[2, 1, 3], kind);
    round_trip::<E, D4<2, 2, 2, 2>>(&[2, 2, 2, 2], kind);
    round_trip::<E, D5<1, 2, 1, 2, 3>>(&[1, 2, 1, 2, 3], kind);
}

macro_rules! dtypes {
    ($($name:ident: $element:ty, $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            every_rank::<$element>(Kind::$kind);
        }
    )*};
}

dtypes! {
    f16_comes_back: f16, Half;
    bf16_comes_back: bf16, BFloat16;
    f32_comes_back: f32, Float;
    f64_comes_back: f64, Double;
    i8_comes_back: i8, Int8;
    i16_comes_back: i16, Int16;
    i32_comes_back: i32, Int;
    i64_comes_back: i64, Int64;
    u8_comes_back: u8, Uint8;
    bool_comes_back: bool, Bool;
}

/// Every kind of field.
#[derive(CacheableOutput)]
struct Everything {
    #[tensor(f32, [2])]
    tensor: Tensor,
    texts: Vec<String>,
    halves: Vec<f16>,
    brains: Vec<bf16>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    bytes: Vec<i8>,
    shorts: Vec<i16>,
    ints: Vec<i32>,
    longs: Vec<i64>,
    unsigned: Vec<u8>,
    flags: Vec<bool>,
    nested: Nested,
    tuple: (Typed<i64, D1<1>>, (Vec<bool>,)),
}

#[derive(CacheableOutput)]
struct Nested(Vec<String>, #[tensor(bool, [])] Tensor);

#[cached_module(id = "everything_v1")]
struct Describe;

impl Extractor for Describe {
    type Input = Vec<i64>;
    type Output = Everything;

    fn forward(&self, samples: &Vec<i64>) -> tcx::Result<Everything> {
        let column = Tensor::from_slice(samples);
        let map = |f: fn(i64) -> f64| samples.iter().map(|&sample| f(sample)).collect::<Vec<_>>();
        let odd: Vec<bool> = samples.iter().map(|sample| sample % 2 == 1).collect();
        Ok(Everything {
            tensor: Tensor::stack(&[&column, &-&column], 1).to_kind(Kind::Float),
            texts: samples.iter().map(|&sample| "né ".repeat(sample as usize)).collect(),
            halves: map(|x| x as f64 / 3.).into_iter().map(f16::from_f64).collect(),
            brains: map(|x| x as f64 / 3.).into_iter().map(bf16::from_f64).collect(),
            floats: map(|x| x as f64 / 3.).into_iter().map(|x| x as f32).collect(),
            doubles: map(|x| -(x as f64) / 3.),
            bytes: samples.iter().map(|&sample| -sample as i8).collect(),
            shorts: samples.iter().map(|&sample| -sample as i16).collect(),
            ints: samples.iter().map(|&sample| -sample as i32).collect(),
            longs: samples.iter().map(|&sample| i64::MIN + sample).collect(),
            unsigned: samples.iter().map(|&sample| 255 - sample as u8).collect(),
            flags: odd.clone(),
            nested: Nested(samples.iter().map(ToString::to_string).collect(), Tensor::from_slice(&odd)),
            tuple: (column.unsqueeze(1).into(), (odd,)),
        })
    }
}

#[test]
fn every_kind_of_field_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let samples = vec![3i64, 0, 5, 1];
    let ids: Vec<String> = samples.iter().map(|sample| format!("sample {sample}")).collect();
    let expected = Describe.forward(&samples).unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    cache.module(Describe).unwrap().forward(&ids[1..3], &samples[1..3].to_vec()).unwrap();
    let mixed = cache.module(Describe).unwrap().forward(&ids, &samples).unwrap();
    cache.close().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let served = cache.module(Describe).unwrap().fetch(&ids, |_| panic!("every row is there")).unwrap();
    for served in [mixed, served] {
        assert_eq!(bits(&served.tensor), bits(&expected.tensor));
        assert_eq!(served.texts, expected.texts);
        assert_eq!((served.halves, served.brains), (expected.halves.clone(), expected.brains.clone()));
        assert_eq!((served.floats, served.doubles), (expected.floats.clone(), expected.doubles.clone()));
        assert_eq!((served.bytes, served.shorts), (expected.bytes.clone(), expected.shorts.clone()));
        assert_eq!((served.ints, served.longs), (expected.ints.clone(), expected.longs.clone()));
        assert_eq!((served.unsigned, served.flags), (expected.unsigned.clone(), expected.flags.clone()));
        assert_eq!(served.nested.0, expected.nested.0);
        assert_eq!(bits(&served.nested.1), bits(&expected.nested.1));
        assert_eq!(bits(&served.tuple.0), bits(&expected.tuple.0));
        assert_eq!(served.tuple.1.0, expected.tuple.1.0);
    }
}

/// Computes `rows` for ids 0, 1, … and reads them back.
fn served(rows: &Tensor) -> Tensor {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let module = echo::<f32, D1<3>>(&cache);
    let ids: Vec<i64> = (0..rows.size()[0]).collect();
    module.forward(&ids, rows).unwrap();
    module.fetch(&ids, |_| panic!("every row is there")).unwrap().into()
}

#[test]
fn views_come_back_as_what_they_show() {
    let matrix = Tensor::arange_start(1, 13, (Kind::Float, Device::Cpu)).view([3, 4]);
    for view in [
        matrix.tr(),
        matrix.i((.., 1..4)),
        matrix.i((0..1, 0..3)).expand([5, 3], false),
        matrix.i((.., 0..3)).flip([0]),
        matrix.i((.., 0..3)).internal_neg_view(),
    ] {
        let plain = view.zeros_like().f_add(&view).unwrap();
        assert_eq!(bits(&served(&view)), bits(&plain));
    }
}

#[test]
fn writing_to_an_output_does_not_reach_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let module = echo::<f32, D1<3>>(&cache);
    let mut input = Tensor::ones([2, 3], tch::kind::FLOAT_CPU);
    let computed: Tensor = module.forward(&[1, 2], &input).unwrap().into();
    let expected = bits(&computed);
    let _ = input.fill_(5.);
    let _ = computed.shallow_clone().fill_(6.);
    let found: Tensor = module.fetch(&[1, 2], |_| panic!("every row is there")).unwrap().into();
    assert_eq!(bits(&found), expected);
    let _ = found.shallow_clone().fill_(7.);
    let again: Tensor = module.fetch(&[1, 2], |_| panic!("every row is there")).unwrap().into();
    assert_eq!(bits(&again), expected);
}
