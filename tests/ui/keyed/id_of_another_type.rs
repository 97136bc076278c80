use tcx::{Extractor, Keyed, cached_module};

#[cached_module(id = "words_v1")]
pub struct Words;

impl Extractor for Words {
    type Input = Vec<u64>;
    type Output = Vec<i64>;

    fn forward(&self, numbers: &Vec<u64>) -> tcx::Result<Vec<i64>> {
        Ok(numbers.iter().map(|&number| number as i64).collect())
    }
}

impl Keyed for Words {
    type Id = u64;

    fn ids(numbers: &Vec<u64>) -> tcx::Result<Vec<u64>> {
        Ok(numbers.clone())
    }
}

fn main() {}
