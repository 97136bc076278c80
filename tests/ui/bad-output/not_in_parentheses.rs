use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(id = "clip_v1", output = ClipOutput)]
pub struct Clip {
    size: i64,
}

impl Extractor for Clip {
    type Input = Tensor;
    type Output = Vec<i64>;

    fn forward(&self, _: &Tensor) -> tcx::Result<Vec<i64>> {
        unimplemented!()
    }
}

fn main() {}
