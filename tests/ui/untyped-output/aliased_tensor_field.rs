use tch::Tensor;
use tcx::CacheableOutput;
type Pooled = Tensor;

#[derive(CacheableOutput)]
pub struct Features {
    pooled: Pooled,
}

fn main() {}
