use std::collections::HashMap;
use tch::{Tensor, nn};
use tcx::{CacheableOutput, Extractor, cached_module};

#[derive(CacheableOutput)]
pub struct Features {
    pooled: Tensor,
    #[tensor(float32, [8])]
    tokens: Tensor,
    score: f32,
    extras: HashMap<String, f32>,
}

#[cached_module(id = "my module", key = u64)]
pub struct Module {
    fc: nn::Linear,
    size: i64,
}

impl Extractor for Module {
    type Input = Tensor;
    type Output = Features;

    fn forward(&self, _: &Tensor) -> tcx::Result<Features> {
        unimplemented!()
    }
}

fn cache<M: tcx::CachedModule>(_: M) {}

pub fn used(module: Module) {
    cache(module);
}

fn main() {}
