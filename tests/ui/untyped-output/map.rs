use std::collections::HashMap;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    extras: HashMap<String, Vec<f32>>,
    sorted: std::collections::BTreeMap<i64, f32>,
}

fn main() {}
