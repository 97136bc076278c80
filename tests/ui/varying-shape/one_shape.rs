use tch::Tensor;
use tcx::{CacheableOutput, Packed};

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [77, 768])]
    tokens: Vec<Tensor>,
    #[tensor(f16, [77, 768])]
    packed: Packed,
}

fn main() {}
