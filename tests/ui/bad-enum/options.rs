use tcx::CacheableOutput;

#[derive(CacheableOutput)]
#[tcx(skip)]
pub enum Label {
    Cat,
    #[tcx(skip)]
    Dog,
}

fn main() {}
