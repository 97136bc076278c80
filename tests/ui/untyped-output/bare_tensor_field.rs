use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    pooled: Tensor,
    raw: tch::Tensor,
}

fn main() {}
