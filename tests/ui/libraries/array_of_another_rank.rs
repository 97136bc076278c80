use ndarray::{Array2, Array3};
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [8])]
    pooled: Array3<f32>,
    #[tensor(f32, [_])]
    tokens: Vec<Array2<f32>>,
}

fn main() {}
