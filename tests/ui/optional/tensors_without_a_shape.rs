use tch::Tensor;
use tcx::{CacheableOutput, Packed};

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<Option<Tensor>>,
    tokens: Packed,
}

fn main() {}
