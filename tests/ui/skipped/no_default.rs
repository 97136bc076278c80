use tcx::CacheableOutput;

pub struct Diary(i64);

#[derive(CacheableOutput)]
pub struct Features {
    caption: Vec<String>,
    #[tcx(skip)]
    diary: Diary,
}

fn main() {}
