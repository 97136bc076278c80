use tch::Tensor;
use tcx::{Cache, D1, Extractor, Typed};

pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok(images.shallow_clone().into())
    }
}

pub fn used(cache: &Cache) -> tcx::Result<()> {
    cache.module(ResNet50)?;
    Ok(())
}

fn main() {}
