use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [8])]
    mask: Option<Tensor>,
    #[tensor(f32, [_])]
    pieces: Option<Vec<Tensor>>,
}

fn main() {}
