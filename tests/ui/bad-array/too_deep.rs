use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<[[[[[[f32; 2]; 2]; 2]; 2]; 2]; 2]>,
}

fn main() {}
