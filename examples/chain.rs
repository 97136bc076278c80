//! Shows: a chain of two cached modules, tokens and their embeddings; the first is part of the identity of the second.
//! Run: `cargo run --example chain`
//! Look at: where all embeddings are there, no text is tokenised; another tokenizer meets no old embeddings.

use tch::nn::{self, Module};
use tch::{Device, Kind, Tensor};
use tcx::{Cache, D1, Extractor, Frozen, Typed, cached_module};

const LENGTH: usize = 8;

#[cached_module(id = "chain_tokens_v1")]
struct Tokenizer {
    vocabulary: i64,
}

impl Extractor for Tokenizer {
    type Input = Vec<String>;
    type Output = Vec<[i64; LENGTH]>;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Self::Output> {
        let number =
            |word: &str| word.bytes().fold(7, |sum, byte| (sum * 31 + i64::from(byte)) % self.vocabulary);
        let tokens = |text: &String| {
            let mut tokens = [0; LENGTH];
            tokens.iter_mut().zip(text.split(' ')).for_each(|(token, word)| *token = number(word));
            tokens
        };
        Ok(texts.iter().map(tokens).collect())
    }
}

#[cached_module(id = "chain_embeddings_v1")]
struct Embedder {
    table: Frozen<nn::Embedding>,
}

impl Extractor for Embedder {
    type Input = Vec<[i64; LENGTH]>;
    type Output = Typed<f32, D1<16>>;

    fn forward(&self, tokens: &Self::Input) -> tcx::Result<Self::Output> {
        let tokens = Tensor::from_slice(tokens.as_flattened()).f_view([-1, LENGTH as i64])?;
        Ok(self.table.forward(&tokens).f_mean_dim([1i64].as_slice(), false, Kind::Float)?.into())
    }
}

fn embedder() -> tcx::Result<Embedder> {
    tch::manual_seed(7);
    let build = |p: &nn::Path<'_>| nn::embedding(p, 1000, 16, nn::EmbeddingConfig::default());
    Ok(Embedder { table: Frozen::build(nn::VarStore::new(Device::Cpu), build)? })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let cache = Cache::open(dir.path())?;
    let tokenizer = cache.module(Tokenizer { vocabulary: 1000 })?;
    let embeddings = cache.module_after(&tokenizer, embedder()?)?;

    let ids = ["doc/1", "doc/2", "doc/3"];
    let read = |id: &str| format!("the words of {id}");
    for round in 0..2 {
        // The loader of the second module asks the first one, which asks for what it is missing.
        let found = embeddings.fetch(&ids, |missing| {
            let ids: Vec<&str> = missing.ids().copied().collect();
            tokenizer.fetch(&ids, |missing| Ok(missing.ids().map(|id| read(id)).collect()))
        })?;
        let asked = tokenizer.stats().hits + tokenizer.stats().misses;
        println!("round {round}: {:?}, {asked} texts asked of the tokenizer so far", found.size());
        assert_eq!(asked, 3);
    }
    cache.flush()?;

    let elsewhere = tempfile::tempdir()?;
    let other = Cache::open(elsewhere.path())?.module(Tokenizer { vocabulary: 500 })?;
    let opened = cache.module_after(&other, embedder()?).map(drop).map_err(|error| error.to_string());
    println!("another tokenizer: {opened:?}");
    let said = "`chain_tokens_v1/vocabulary`: 1000i64 in the cache, 500i64 in the code";
    assert!(opened.is_err_and(|error| error.contains(said)));
    Ok(())
}
