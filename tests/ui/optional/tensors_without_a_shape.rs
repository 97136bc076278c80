use tch::Tensor;
use tcx::{CacheableOutput, Ragged};

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<Option<Tensor>>,
    tokens: Ragged,
}

fn main() {}
