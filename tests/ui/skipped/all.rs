use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tcx(skip)]
    caption: Vec<String>,
}

fn main() {}
