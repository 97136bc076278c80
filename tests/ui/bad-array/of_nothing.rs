use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<[f32; 0]>,
}

fn main() {}
