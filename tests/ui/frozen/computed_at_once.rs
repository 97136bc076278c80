use tch::{Tensor, nn, nn::Module};
use tcx::{Cache, D1, Extractor, Frozen, Typed, cached_module};

#[cached_module(id = "computed_at_once_v1")]
struct Head {
    fc: Frozen<nn::Linear>,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Typed<f32, D1<2>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(self.fc.forward(x).into())
    }
}

fn open(cache: &Cache, head: Head) -> tcx::Result<()> {
    cache.module(head)?.concurrency(2)?.flush()
}

fn main() {}
