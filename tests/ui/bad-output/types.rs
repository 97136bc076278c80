use std::collections::HashMap;
use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(
    id = "clip_v1",
    output(pooled: tensor(f32, [512]), extras: HashMap<String, Vec<f32>>, score: f32, maybe: Vec<Option<Option<i64>>>)
)]
pub struct Clip {
    size: i64,
}

impl Extractor for Clip {
    type Input = Tensor;
    type Output = (Vec<i64>,);

    fn forward(&self, _: &Tensor) -> tcx::Result<Self::Output> {
        unimplemented!()
    }
}

fn main() {}
