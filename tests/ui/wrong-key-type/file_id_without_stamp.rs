use tch::Tensor;
use tcx::{Cached, D1, Extractor, Typed, cached_module};

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50 {
    size: i64,
}

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = Typed<f32, D1<2048>>;

    fn forward(&self, images: &Tensor) -> tcx::Result<Self::Output> {
        Ok((images * self.size).into())
    }
}

pub fn used(resnet: &Cached<ResNet50>, images: &Tensor) -> tcx::Result<()> {
    let ids = [tcx::FileId::of("cat.png")?];
    resnet.forward(&ids, images)?;
    Ok(())
}

fn main() {}
