use tch::Tensor;
use tcx::CacheableOutput;
const HIDDEN: usize = 384;

pub fn used() -> usize {
    HIDDEN
}

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [HIDEN])]
    a: Tensor,
}

fn main() {}
