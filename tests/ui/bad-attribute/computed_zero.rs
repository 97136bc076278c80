use tch::Tensor;
use tcx::CacheableOutput;
const HEADS: usize = 1;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [HEADS / 2])]
    a: Tensor,
}

fn main() {}
