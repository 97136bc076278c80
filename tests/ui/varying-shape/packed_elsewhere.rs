use tcx::{CacheableOutput, Packed};

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [3, _])]
    rows: Packed,
    #[tensor(f16, [_, _])]
    maps: Packed,
}

fn main() {}
