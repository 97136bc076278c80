use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(f32, [8], store = f64)]
    a: Tensor,
    #[tensor(i64, [8], store = f16)]
    b: Tensor,
    #[tensor(f32, [8], store = f32)]
    c: Tensor,
    #[tensor(f32, [8], store)]
    d: Tensor,
    #[tensor(f32, [8], store = 16)]
    e: Tensor,
    #[tensor(f32, [8], stored = f16)]
    f: Tensor,
    #[tensor(f32, [8], store = f16, store = bf16)]
    g: Tensor,
    #[tensor(f64, [_], store = f16)]
    h: Vec<Tensor>,
}

fn main() {}
