use tcx::CacheableOutput;
pub struct Rect;

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<Option<Rect>>,
}

fn main() {}
