use tcx::CacheableOutput;
pub struct Rect;

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<Rect>,
}

fn main() {}
