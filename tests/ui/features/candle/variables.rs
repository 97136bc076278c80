use candle_core::{Tensor, Var};
use candle_nn::VarMap;
use tcx::{Extractor, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    weight: Var,
    others: VarMap,
    mean: Tensor,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Vec<f32>;

    fn forward(&self, _: &Tensor) -> tcx::Result<Vec<f32>> {
        unimplemented!()
    }
}

fn main() {}
