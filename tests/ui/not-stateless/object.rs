use tch::Tensor;
use tcx::Stateless;

pub trait Backbone: Stateless {
    fn run(&self, x: &Tensor) -> Tensor;
}

pub struct Linear(tch::nn::Linear);

impl Backbone for Linear {
    fn run(&self, x: &Tensor) -> Tensor {
        x.apply(&self.0)
    }
}

fn main() {}
