use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub enum Features {
    Caption(Vec<String>),
    Score(Vec<f32>),
}

fn main() {}
