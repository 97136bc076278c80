use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    caption: Option<Vec<String>>,
}

fn main() {}
