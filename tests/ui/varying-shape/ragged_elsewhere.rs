use tcx::{CacheableOutput, Ragged};

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f16, [3, _])]
    rows: Ragged,
    #[tensor(f16, [_, _])]
    maps: Ragged,
}

fn main() {}
