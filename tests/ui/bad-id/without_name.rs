use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module("a_v1")]
pub struct ResNet50 {
    size: i64,
}

#[cached_module("ResNet 50", key = i64)]
pub struct Other;

#[cached_module(50)]
pub struct Third;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok((images * self.size).into())
    }
}

impl Extractor for Other {
    type Input = Tensor;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok(images.shallow_clone().into())
    }
}

impl Extractor for Third {
    type Input = Tensor;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok(images.shallow_clone().into())
    }
}

fn main() {}
