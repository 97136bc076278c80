use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub enum Label {
    Cat,
    Dog = 1 << 40,
}

#[derive(CacheableOutput)]
pub struct Features {
    label: Vec<Label>,
}

fn main() {}
