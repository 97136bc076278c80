use tch::Tensor;
use tcx::{Extractor, cached_module};

#[cached_module(
    id = "clip_v1",
    output(
        a: tensor(float32, [8]),
        b: tensor(f32),
        c: tensor(f32, [0, -1]),
        d: tensor(f32, [_, 8], store = f64),
        e: tensor,
        f: tenser(f32, [8]),
        g: Tensor,
        h: Vec<Tensor>,
        i,
        Vec<String>,
        j = Vec<String>,
        k:,
        pub m: Vec<String>,
        #[tensor(f32, [8])]
        n: Tensor,
        o: &'static str,
        __p: Vec<String>,
        q: Vec<i64>,
        q: Vec<f32>,
        r: Vec<Option<Tensor>>,
        s: Ragged,
    )
)]
pub struct Clip {
    size: i64,
}

impl Extractor for Clip {
    type Input = Tensor;
    type Output = ClipOutput;

    fn forward(&self, _: &Tensor) -> tcx::Result<ClipOutput> {
        unimplemented!()
    }
}

fn main() {}
