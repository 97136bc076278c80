use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub union Label {
    number: i64,
    float: f64,
}

fn main() {}
