use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    tokens: Vec<Tensor>,
}

fn main() {}
