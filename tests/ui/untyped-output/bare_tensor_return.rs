use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, _: &Tensor) -> tcx::Result<Tensor> {
        unimplemented!()
    }
}

fn main() {}
