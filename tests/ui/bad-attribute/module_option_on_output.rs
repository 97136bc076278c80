use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tcx(not_identity)]
    caption: Vec<String>,
    #[tcx(storage = f16)]
    score: Vec<f32>,
}

fn main() {}
