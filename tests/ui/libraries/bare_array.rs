use ndarray::ArrayD;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    pooled: ArrayD<f32>,
}

fn main() {}
