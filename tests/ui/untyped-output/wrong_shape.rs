use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = tcx::Typed<f32, [usize; 1]>;

    fn forward(&self, _: &Tensor) -> tcx::Result<tcx::Typed<f32, [usize; 1]>> {
        unimplemented!()
    }
}

fn main() {}
