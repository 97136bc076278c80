use tch::{Tensor, nn};
use tcx::{CachedModule, D1, Extractor, Typed, cached_module};

#[cached_module(id = "encoder_v1")]
pub struct Encoder<B> {
    backbone: B,
}

impl<B> Extractor for Encoder<B> {
    type Input = Tensor;
    type Output = Typed<f32, D1<10>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

fn cache<M: CachedModule>(_: M) {}

pub fn used(backbone: nn::Linear) {
    cache(Encoder { backbone });
}

fn main() {}
