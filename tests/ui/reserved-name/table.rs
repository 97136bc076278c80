#![allow(non_camel_case_types)]

use tch::Tensor;
use tcx::{D1, Extractor, Typed, cached_module};

#[cached_module(id = "table_v1")]
pub struct table;

impl Extractor for table {
    type Input = Tensor;
    type Output = Typed<f32, D1<8>>;

    fn forward(&self, x: &Tensor) -> tcx::Result<Self::Output> {
        Ok(x.shallow_clone().into())
    }
}

fn main() {}
