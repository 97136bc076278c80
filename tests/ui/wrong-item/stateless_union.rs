use tcx::Stateless;

#[derive(Stateless)]
pub union Size {
    pixels: i64,
    fraction: f64,
}

fn main() {}
