use tcx::cached_module;

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50 {
    size: i64,
}

fn main() {}
