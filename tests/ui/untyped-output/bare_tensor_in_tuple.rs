use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = (Tensor, Vec<i64>);

    fn forward(&self, _: &Tensor) -> tcx::Result<(Tensor, Vec<i64>)> {
        unimplemented!()
    }
}

fn main() {}
