use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {}

fn main() {}
