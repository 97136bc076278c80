use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [_, 768])]
    tokens: tch::Tensor,
}

fn main() {}
