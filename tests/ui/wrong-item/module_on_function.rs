use tch::Tensor;
use tcx::cached_module;

#[cached_module(id = "resnet50_v1")]
pub fn forward(images: &Tensor) -> Tensor {
    images.shallow_clone()
}

fn main() {}
