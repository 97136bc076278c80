use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    box_: [f32; 4],
}

fn main() {}
