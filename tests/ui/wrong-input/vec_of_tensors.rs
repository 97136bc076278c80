use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Vec<Tensor>;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, _: &Vec<Tensor>) -> tcx::Result<Self::Output> {
        unimplemented!()
    }
}

fn main() {}
