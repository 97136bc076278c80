use tch::Tensor;
use tcx::{CachedModule, D1, Extractor, Id, Typed, cached_module};

#[cached_module(id = "resnet50_v1", key = i64)]
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

fn forward<M: CachedModule, I: Id<M::Key>>(_: &M, _: &[I]) {}

pub fn used(module: &ResNet50) {
    let ids: Vec<u64> = vec![1, 2];
    forward(module, &ids);
}

fn main() {}
