use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [2, 4])]
    pooled: Vec<Vec<f32>>,
}

fn main() {}
