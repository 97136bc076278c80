use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tenser(f32, [8])]
    a: Tensor,
}

fn main() {}
