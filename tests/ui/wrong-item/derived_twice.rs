use tch::Tensor;
use tcx::{D1, Extractor, Stateless, Typed, cached_module};

#[cached_module(id = "identity_v1")]
#[derive(Debug, Stateless)]
pub struct Same;

impl Extractor for Same {
    type Input = Tensor;
    type Output = Typed<f32, D1<8>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

#[derive(Stateless)]
#[cached_module(id = "above_v1")]
pub struct Above;

impl Extractor for Above {
    type Input = Tensor;
    type Output = Typed<f32, D1<8>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

fn main() {}
