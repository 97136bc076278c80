use candle_core::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    pooled: Tensor,
}

fn main() {}
