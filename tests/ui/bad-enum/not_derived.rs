use tcx::CacheableOutput;

pub enum Label {
    Cat,
    Dog,
}

#[derive(CacheableOutput)]
pub struct Features {
    label: Vec<Label>,
}

fn main() {}
