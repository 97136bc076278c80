//! Heads that can be trained: an output that depends on one is refused as soon as a tensor shows it, also if the first batches have none.

#![expect(clippy::unwrap_used, reason = "a failure of what a test sets up fails the test")]

use std::sync::{Arc, Mutex};

use tch::{Kind, Tensor, kind};
use tcx::{
    Cache, CacheableOutput, Cached, Device, ErrorKind, Extractor, Ragged, Result, TensorLike, TensorMemory,
    cached_module,
};
use tempfile::TempDir;

/// Negative inputs have no features, or none but an empty tensor.
#[derive(CacheableOutput)]
struct Features {
    #[tensor(f32, [2])]
    pooled: Vec<Option<Tensor>>,
    #[tensor(f32, [_, 2])]
    tokens: Vec<Tensor>,
    #[tensor(f32, [_, 2])]
    joined: Ragged,
    #[tensor(bool, [1])]
    mask: Tensor,
}

#[cached_module(id = "trainable_head_v1", key = i64)]
struct Trainable {
    #[tcx(assume_stateless)]
    head: Tensor,
    /// The field that the head takes part in.
    #[tcx(not_identity)]
    field: &'static str,
    /// Whether gradients were on, for each batch.
    #[tcx(assume_stateless)]
    with_gradients: Arc<Mutex<Vec<bool>>>,
}

impl Extractor for Trainable {
    type Input = Vec<i64>;
    type Output = Features;

    fn forward(&self, inputs: &Vec<i64>) -> Result<Features> {
        self.with_gradients.lock().unwrap().push((&self.head * 2).requires_grad());
        let part = |field: &str, input: i64| {
            let head = if field == self.field { self.head.shallow_clone() } else { self.head.detach() };
            head * input
        };
        let tokens = |field: &str, input: i64| {
            if input < 0 { Tensor::zeros([0, 2], kind::FLOAT_CPU) } else { part(field, input).unsqueeze(0) }
        };
        let joined: Vec<Tensor> = inputs.iter().map(|input| tokens("joined", *input)).collect();
        let ends = joined.iter().scan(0, |end, tokens| {
            *end += tokens.size()[0];
            Some(*end)
        });
        let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
        Ok(Features {
            pooled: inputs.iter().map(|&input| (input >= 0).then(|| part("pooled", input))).collect(),
            tokens: inputs.iter().map(|&input| tokens("tokens", input)).collect(),
            joined: Ragged { values: Tensor::cat(&joined, 0), offsets: Tensor::from_slice(&offsets) },
            mask: Tensor::ones([inputs.len() as i64, 1], (Kind::Bool, tch::Device::Cpu)),
        })
    }
}

fn open(dir: &TempDir, field: &'static str, with_gradients: Arc<Mutex<Vec<bool>>>) -> Cached<Trainable> {
    let head = Tensor::from_slice(&[1_f32, 2.]).set_requires_grad(true);
    Cache::open(dir.path()).unwrap().module(Trainable { head, field, with_gradients }).unwrap()
}

#[test]
fn a_trainable_head_is_refused_in_the_first_batch_that_has_a_tensor_of_it() {
    for field in ["pooled", "tokens", "joined"] {
        let dir = tempfile::tempdir().unwrap();
        let cached = open(&dir, field, Arc::default());
        for ids in [[-1, -2], [-3, -4]] {
            cached.forward(&ids, &ids.to_vec()).unwrap();
        }
        let error = cached.forward(&[1, -5], &vec![1, -5]).map(drop).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::ModuleViolation, Some(field)), "{error}");
        assert_eq!(cached.coverage(&[1, -5]).unwrap().missing(), [0, 1]);
    }
}

#[test]
fn gradients_are_on_until_every_field_has_shown_that_it_tracks_none() {
    let dir = tempfile::tempdir().unwrap();
    let with_gradients = Arc::default();
    let cached = open(&dir, "none", Arc::clone(&with_gradients));
    for (ids, expected) in [([-1, -2], true), ([1, 2], true), ([3, 4], false), ([-5, -6], false)] {
        cached.forward(&ids, &ids.to_vec()).unwrap();
        // The checks compute a batch again, without gradients.
        let with_gradients = std::mem::take(&mut *with_gradients.lock().unwrap());
        assert_eq!(with_gradients[0], expected, "{ids:?}");
    }
}

/// A tensor of a library whose gradients cannot be switched off.
struct Own {
    number: f32,
    is_trainable: bool,
}

impl TensorLike for Own {
    const DTYPES: &'static [tcx::DType] = &[tcx::DType::F32];
    const RANK: Option<usize> = None;

    fn from_memory(memory: TensorMemory, _: &[usize]) -> Result<Self> {
        let number = memory.bytes().first_chunk().map_or(0., |number| f32::from_le_bytes(*number));
        Ok(Self { number, is_trainable: false })
    }

    fn shape(&self) -> Vec<usize> {
        vec![1]
    }

    fn dtype(&self) -> Result<tcx::DType> {
        Ok(tcx::DType::F32)
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        Ok(use_bytes(&self.number.to_le_bytes()))
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn tracks_gradients(&self) -> bool {
        self.is_trainable
    }
}

#[derive(CacheableOutput)]
struct OwnFeatures {
    #[tensor(f32, [1])]
    pooled: Vec<Option<Own>>,
}

/// A head takes part from 10 on.
#[cached_module(id = "own_head_v1", key = i64)]
struct OwnHead {}

impl Extractor for OwnHead {
    type Input = Vec<i64>;
    type Output = OwnFeatures;

    fn forward(&self, inputs: &Vec<i64>) -> Result<OwnFeatures> {
        let own = |&input: &i64| Some(Own { number: input as f32, is_trainable: input >= 10 });
        Ok(OwnFeatures { pooled: inputs.iter().map(own).collect() })
    }
}

#[test]
fn every_batch_is_looked_at_where_gradients_cannot_be_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let cached = Cache::open(dir.path()).unwrap().module(OwnHead {}).unwrap();
    cached.forward(&[1, 2], &vec![1, 2]).unwrap();
    let error = cached.forward(&[3, 10], &vec![3, 10]).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::ModuleViolation, Some("pooled")), "{error}");
    assert_eq!(cached.coverage(&[3, 10]).unwrap().missing(), [0, 1]);
}
