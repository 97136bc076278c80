use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    caption: Vec<&'static str>,
    score: &'static [f32],
}

fn main() {}
