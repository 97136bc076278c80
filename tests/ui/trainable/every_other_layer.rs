use tch::nn;
use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    transposed: nn::ConvTranspose2D,
    layer: nn::LayerNorm,
    group: nn::GroupNorm,
    embedding: nn::Embedding,
    lstm: nn::LSTM,
    gru: nn::GRU,
    sequential: nn::SequentialT,
    function: nn::Func<'static>,
    shared: std::sync::Arc<dyn nn::Module>,
    sent: Box<dyn nn::ModuleT + Send>,
}

impl Extractor for Head {
    type Input = Tensor;
    type Output = Typed<f32, D1<10>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

/// Using the module is no second error.
pub fn id<M: tcx::CachedModule>(_: &M) -> &'static str {
    M::ID
}

pub fn used(head: &Head) -> &'static str {
    id(head)
}

fn main() {}
