use tch::Tensor;
use tcx::{D2, Extractor, Typed, cached_module};

#[cached_module(id = "encoder_v1")]
pub struct Encoder;

impl Extractor for Encoder {
    type Input = Tensor;
    type Output = Typed<f32, D2<_, 768>>;

    fn forward(&self, _: &Tensor) -> tcx::Result<Self::Output> {
        unimplemented!()
    }
}

fn main() {}
