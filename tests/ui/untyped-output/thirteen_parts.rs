use tch::Tensor;

type V = Vec<i64>;

use tcx::{Extractor, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = (V, V, V, V, V, V, V, V, V, V, V, V, V);

    fn forward(&self, _: &Tensor) -> tcx::Result<(V, V, V, V, V, V, V, V, V, V, V, V, V)> {
        unimplemented!()
    }
}

fn main() {}
