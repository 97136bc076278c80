use candle_core::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(bool, [8])]
    mask: Tensor,
    #[tensor(i8, [_])]
    codes: Vec<Tensor>,
}

fn main() {}
