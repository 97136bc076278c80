use candle_core::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [_, 8])]
    tokens: Tensor,
}

fn main() {}
