use tcx::CacheableOutput;
pub struct Thing;

#[derive(CacheableOutput)]
pub struct Features {
    thing: Thing,
}

fn main() {}
