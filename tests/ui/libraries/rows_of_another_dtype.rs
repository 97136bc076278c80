use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [8])]
    pooled: Vec<Vec<f64>>,
}

fn main() {}
