use ndarray::{Array2, Array3};
use tcx::{Extractor, cached_module};

#[cached_module(
    id = "clip_v1",
    output(
        pooled: tensor(f32, [512]) as,
        tokens: tensor(f32, [77, 512]) as Array3<,
        score: Vec<f32> as Vec<f64>
    )
)]
pub struct Clip {
    size: i64,
}

#[cached_module(id = "blip_v1", output(pooled: tensor(f32, [512]) as Array3<f32>, mean: tensor(f16, [8]) as Array2<f32>))]
pub struct Blip {
    size: i64,
}

macro_rules! extractor {
    ($name:ident) => {
        impl Extractor for $name {
            type Input = Vec<i64>;
            type Output = (Vec<i64>,);

            fn forward(&self, _: &Vec<i64>) -> tcx::Result<Self::Output> {
                unimplemented!()
            }
        }
    };
}

extractor!(Clip);
extractor!(Blip);

fn main() {}
