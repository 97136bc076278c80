//! Outputs are the same whether their tensors are made after their rows were looked up, as those of the first batch are, or
//! before, as those of all others.

use tch::{Device, IndexOp, Kind, Tensor};
use tcx::{Cache, CacheableOutput, Extractor, Mode, cached_module};

#[derive(CacheableOutput, Debug)]
struct Features {
    #[tensor(f32, [3])]
    pooled: Tensor,
    number: Vec<i64>,
    #[tensor(f32, [2, 2], store = f16)]
    halves: Tensor,
    #[tensor(bool, [5])]
    mask: Tensor,
    #[tensor(f32, [2])]
    perhaps: Vec<Option<Tensor>>,
}

#[derive(CacheableOutput, Debug)]
struct Some {
    #[tensor(bool, [5])]
    mask: Tensor,
    #[tensor(f32, [3])]
    pooled: Tensor,
}

#[cached_module(id = "gathered_v1", key = i64)]
struct Network {}

impl Extractor for Network {
    type Input = Vec<i64>;
    type Output = Features;

    fn forward(&self, numbers: &Vec<i64>) -> tcx::Result<Features> {
        Ok(features(numbers))
    }
}

fn features(numbers: &[i64]) -> Features {
    let column = Tensor::from_slice(numbers).unsqueeze(1);
    let filled = |width: i64| column.expand([-1, width], false).to_kind(Kind::Float);
    let mask = (&column + Tensor::arange(5, (Kind::Int64, Device::Cpu))).remainder(2);
    let perhaps = |number: &i64| (number % 3 == 0).then(|| Tensor::from_slice(&[*number as f32; 2]));
    Features {
        pooled: filled(3),
        number: numbers.to_vec(),
        halves: filled(4).view([-1, 2, 2]),
        mask: mask.to_kind(Kind::Bool),
        perhaps: numbers.iter().map(perhaps).collect(),
    }
}

/// The output of the cache is that of the network.
fn check(found: &Features, ids: &[i64]) {
    let expected = features(ids);
    assert_eq!(found.number, expected.number);
    check_some(&found.mask, &found.pooled, ids);
    assert!(found.halves.kind() == Kind::Float && found.halves == expected.halves, "{ids:?}");
    for (found, expected) in found.perhaps.iter().zip(&expected.perhaps) {
        assert_eq!(found.is_some(), expected.is_some());
        assert!(found.iter().zip(expected).all(|(found, expected)| found == expected));
    }
}

fn check_some(mask: &Tensor, pooled: &Tensor, ids: &[i64]) {
    let expected = features(ids);
    assert!(mask.kind() == Kind::Bool && *mask == expected.mask, "{ids:?}");
    assert!(*pooled == expected.pooled, "{ids:?}");
}

#[test]
fn batches_are_the_same_found_half_found_missing_and_empty() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(dir.path()).unwrap();
    let network = cache.module(Network {}).unwrap();
    let pick = |first: i64| (0..40).map(|i| first + i * 7 % 40).collect::<Vec<_>>();
    for flushes in [false, true, true] {
        for first in [0, 20, 60, 0, 30, 100] {
            let ids = pick(first);
            check(&network.forward(&ids, &ids).unwrap(), &ids);
            let twice = [&ids[..5], &ids[..5]].concat();
            check(&network.fetch(&twice, |_| unreachable!("they are there")).unwrap(), &twice);
        }
        assert_eq!(network.forward::<i64>(&[], &Vec::new()).unwrap().pooled.size(), [0, 3]);
        if flushes {
            network.flush().unwrap();
        }
    }
    for mode in [Mode::ReadOnly, Mode::Recompute, Mode::Off] {
        let network = cache.with_mode(mode).module(Network {}).unwrap();
        for ids in [pick(0), pick(500), pick(10)] {
            check(&network.forward(&ids, &ids).unwrap(), &ids);
        }
    }
}

#[test]
fn some_fields_are_the_same_too() {
    let dir = tempfile::tempdir().unwrap();
    let network = Cache::open(dir.path()).unwrap().module(Network {}).unwrap();
    let some = network.fields::<Some>().unwrap();
    for first in [0, 10, 0, 0] {
        let ids: Vec<i64> = (first..first + 30).rev().collect();
        let found = some.forward(&ids, &ids).unwrap();
        check_some(&found.mask, &found.pooled, &ids);
        network.flush().unwrap();
    }
}

#[test]
fn a_batch_is_no_longer_that_of_the_cache_once_it_was_returned() {
    let dir = tempfile::tempdir().unwrap();
    let network = Cache::open(dir.path()).unwrap().module(Network {}).unwrap();
    let ids: Vec<i64> = (0..8).collect();
    network.forward(&ids, &ids).unwrap();
    network.flush().unwrap();
    let batches: Vec<_> = (0..3).map(|_| network.forward(&ids, &ids).unwrap()).collect();
    let _ = batches[1].pooled.i(0).fill_(-1.);
    check(&batches[0], &ids);
    check(&batches[2], &ids);
    check(&network.forward(&ids, &ids).unwrap(), &ids);
}
