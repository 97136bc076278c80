use tcx::{Extractor, cached_module};

#[cached_module(id = "head_v1")]
pub struct Head {
    #[cfg_attr(all(), allow(dead_code))]
    size: i64,
    #[cfg_attr(all(), allow(dead_code), tcx(not_identity))]
    verbose: bool,
}

impl Extractor for Head {
    type Input = Vec<i64>;
    type Output = Vec<i64>;

    fn forward(&self, x: &Vec<i64>) -> tcx::Result<Vec<i64>> {
        Ok(x.iter().map(|x| x * self.size).collect())
    }
}

fn main() {}
