use ndarray::Array2;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [8])]
    pooled: Array2<f32>,
}

fn main() {}
