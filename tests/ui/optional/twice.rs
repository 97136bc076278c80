use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    score: Vec<Option<Option<f32>>>,
}

fn main() {}
