use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [_, 768])]
    tokens: Vec<Tensor>,
}

fn main() {}
