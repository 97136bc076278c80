use tch::Tensor;
use tcx::{CacheableOutput, Ragged};

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [77, 768])]
    tokens: Vec<Tensor>,
    #[tensor(f16, [77, 768])]
    packed: Ragged,
}

fn main() {}
