use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub enum Label<const N: usize> {
    Cat,
    Dog,
}

fn main() {}
