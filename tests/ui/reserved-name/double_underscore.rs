use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    __key: Vec<String>,
}

fn main() {}
