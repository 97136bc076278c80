use tcx::cached_module;

#[cached_module(id = "clip_v1", output(pooled: tensor(f32, [N]), kinds: Vec<T>, caption: Vec<String>))]
pub struct Clip<T, const N: usize> {
    kind: T,
}

fn main() {}
