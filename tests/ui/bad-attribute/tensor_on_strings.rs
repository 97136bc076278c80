use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [8])]
    caption: Vec<String>,
}

fn main() {}
