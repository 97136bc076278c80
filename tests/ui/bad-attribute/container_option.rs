use tcx::CacheableOutput;

#[derive(CacheableOutput)]
#[tcx(krate = my_tcx)]
pub struct Features {
    caption: Vec<String>,
}

fn main() {}
