use tch::Tensor;
use tcx::{Extractor, cached_module};

const HEADS: usize = 0;

#[cached_module(id = "clip_v1", output(pooled: tensor(f32, [HEADS * 2])))]
pub struct Clip {
    size: i64,
}

impl Extractor for Clip {
    type Input = Tensor;
    type Output = ClipOutput;

    fn forward(&self, images: &Tensor) -> tcx::Result<ClipOutput> {
        Ok(ClipOutput { pooled: images.shallow_clone() })
    }
}

fn main() {}
