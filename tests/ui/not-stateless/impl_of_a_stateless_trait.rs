use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tch::Tensor;
use tcx::{D1, Extractor, Stateless, Typed, cached_module};

pub trait Net: Stateless {
    fn run(&self, x: &Tensor) -> Tensor;
}

pub struct Counts {
    pub calls: AtomicU64,
}

impl Net for Counts {
    fn run(&self, x: &Tensor) -> Tensor {
        x.shallow_clone()
    }
}

/// The error stands where the trait is implemented, not where its objects are held.
#[cached_module(id = "head_v1")]
pub struct Head {
    net: Arc<dyn Net>,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Typed<f32, D1<10>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.net.run(x).into())
    }
}

fn main() {}
