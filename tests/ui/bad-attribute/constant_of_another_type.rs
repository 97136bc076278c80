use tch::Tensor;
use tcx::CacheableOutput;
const HIDDEN: i64 = 384;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [HIDDEN])]
    a: Tensor,
}

fn main() {}
