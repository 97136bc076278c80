use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    caption: Vec<String>,
    #[tcx(skip)]
    #[tensor(f32, [8])]
    pooled: tch::Tensor,
}

fn main() {}
