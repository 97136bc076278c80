use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub enum Label {}

fn main() {}
