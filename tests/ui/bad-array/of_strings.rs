use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    names: Vec<[String; 2]>,
}

fn main() {}
