use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features<'a> {
    scores: &'a Vec<f32>,
}

fn main() {}
