use tcx::CacheableOutput;

#[derive(CacheableOutput)]
pub enum Label {
    Cat,
    Other(String),
    Named { name: String },
}

#[derive(CacheableOutput)]
pub struct Features {
    label: Vec<Label>,
}

fn main() {}
