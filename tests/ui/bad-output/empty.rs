use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(id = "clip_v1", output())]
pub struct Clip {
    size: i64,
}

impl Extractor for Clip {
    type Input = Tensor;
    type Output = ClipOutput;

    fn forward(&self, _: &Tensor) -> tcx::Result<ClipOutput> {
        unimplemented!()
    }
}

fn main() {}
