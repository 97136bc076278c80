use tch::nn;
use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    memory: nn::LSTMState,
    last: Option<nn::GRUState>,
    value: tch::IValue,
    many: Vec<Tensor>,
    variables: std::sync::Arc<std::sync::Mutex<nn::Variables>>,
    more: Box<nn::Variables>,
    trained: tch::TrainableCModule,
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
