use tch::nn;
use tcx::Frozen;

pub fn used(fc: Frozen<nn::Linear>) -> nn::Linear {
    *fc
}

fn main() {}
