use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    caption: Vec<String>,
    #[tcx(skipp)]
    pooled: tch::Tensor,
    #[tcx(skip = true)]
    tokens: tch::Tensor,
    #[tcx(skip, skip)]
    diary: i64,
}

fn main() {}
