use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    score: f32,
    label: i64,
    caption: String,
    keep: bool,
}

fn main() {}
