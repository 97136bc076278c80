use tch::{Tensor, nn};
use tcx::Frozen;

pub fn used(fc: Frozen<nn::Linear>, weight: Tensor) -> Frozen<nn::Linear> {
    fc.ws = weight;
    fc
}

fn main() {}
