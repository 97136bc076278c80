use std::collections::HashMap;
use tch::Tensor;
use tcx::{CacheableOutput, Extractor, cached_module};
pub struct Rect;
pub struct NoDefault;

#[derive(CacheableOutput)]
pub struct Features {
    boxes: Vec<Rect>,
    extras: HashMap<String, f32>,
    #[tensor(f32, [8])]
    names: Vec<String>,
    #[tcx(skip)]
    diary: NoDefault,
    score: Vec<f32>,
}

#[derive(CacheableOutput)]
pub struct Outer {
    inner: Features,
}

#[cached_module(id = "resnet50_v1")]
pub struct ResNet50;

impl Extractor for ResNet50 {
    type Input = Tensor;
    type Output = (Features, Outer);

    fn forward(&self, _: &Tensor) -> tcx::Result<(Features, Outer)> {
        unimplemented!()
    }
}

fn main() {}
