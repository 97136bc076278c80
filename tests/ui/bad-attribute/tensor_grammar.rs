use tch::Tensor;
use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub struct Features {
    #[tensor(float32, [8])]
    a: Tensor,
    #[tensor(f32)]
    b: Tensor,
    #[tensor(f32, [0])]
    c: Tensor,
    #[tensor(f32, [-1, 8, "x"])]
    d: Tensor,
    #[tensor()]
    e: Tensor,
    #[tensor]
    f: Tensor,
    #[tensor(u32, [8])]
    g: Tensor,
    #[tensor(f32, 8)]
    h: Tensor,
    #[tensor(f32, [1, 2, 3, 4, 5, 6])]
    i: Tensor,
    #[tensor(f32, [8], lossless)]
    j: Tensor,
    #[tensor("f32", [8])]
    k: Tensor,
    #[tensor(f32, [8])]
    #[tensor(f32, [8])]
    l: Tensor,
}

fn main() {}
