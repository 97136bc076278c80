use tcx::{Cache, Extractor, cached_module};

#[cached_module(id = "words_v1")]
pub struct Words;

impl Extractor for Words {
    type Input = Vec<String>;
    type Output = Vec<i64>;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Vec<i64>> {
        Ok(texts.iter().map(|text| text.len() as i64).collect())
    }
}

fn main() -> tcx::Result<()> {
    let words = Cache::open("cache")?.module(Words)?;
    let lengths = words.forward_keyed(&vec!["a cat".to_owned()])?;
    println!("{lengths:?}");
    Ok(())
}
