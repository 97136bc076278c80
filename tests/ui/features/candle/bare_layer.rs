use candle_core::Tensor;
use candle_nn::Linear;
use tcx::{Extractor, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    fc: Linear,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Vec<f32>;

    fn forward(&self, _: &Tensor) -> tcx::Result<Vec<f32>> {
        unimplemented!()
    }
}

fn main() {}
