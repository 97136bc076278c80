//! Shows: an output with nested structs, text, classes and arrays; each part becomes a column of its own.
//! Run: `cargo run --example structured`
//! Look at: the types of what comes back, and the files, which any Arrow reader opens.

use tch::{Kind, Tensor};
use tcx::{Cache, CacheableOutput, D0, Extractor, Typed, cached_module};

#[derive(CacheableOutput, Clone, Copy, Debug, PartialEq)]
enum Language {
    English,
    Other,
}

#[derive(CacheableOutput)]
struct Shape {
    words: Vec<i64>,
    /// Shortest, longest word.
    range: Vec<[i32; 2]>,
}

#[derive(CacheableOutput)]
struct Analysis {
    #[tensor(f32, [26])]
    letters: Tensor, // how often each letter comes
    shape: Shape, // a struct in a struct
    language: Vec<Language>,
    summary: Vec<String>, // text of any length
    score: (Typed<f64, D0>, Vec<bool>),
    #[tcx(skip)]
    trace: Option<String>, // not cached: `None` when it comes back
}

#[cached_module(id = "structured_analysis_v1")]
struct Analyser {
    long: usize,
}

impl Extractor for Analyser {
    type Input = Vec<String>;
    type Output = Analysis;

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Analysis> {
        let letter = |text: &String, letter| text.bytes().filter(|byte| *byte == letter).count() as f32;
        let letters: Vec<f32> =
            texts.iter().flat_map(|text| (b'a'..=b'z').map(move |x| letter(text, x))).collect();
        let letters = Tensor::from_slice(&letters).f_view([-1, 26])?;
        let lens = |text: &String| text.split(' ').map(|word| word.len() as i32).collect::<Vec<_>>();
        let range = |text| [*lens(text).iter().min().unwrap_or(&0), *lens(text).iter().max().unwrap_or(&0)];
        let is_english = |text: &String| text.contains("the");
        Ok(Analysis {
            score: (
                letters.f_sum_dim_intlist([1i64].as_slice(), false, Kind::Double)?.into(),
                texts.iter().map(|text| text.len() > self.long).collect(),
            ),
            letters,
            shape: Shape {
                words: texts.iter().map(|text| lens(text).len() as i64).collect(),
                range: texts.iter().map(range).collect(),
            },
            language: texts
                .iter()
                .map(|text| if is_english(text) { Language::English } else { Language::Other })
                .collect(),
            summary: texts.iter().map(|text| text.chars().take(12).collect()).collect(),
            trace: Some("seen by `forward` only".to_owned()),
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let cache = Cache::open(dir.path())?;
    let analyser = cache.module(Analyser { long: 20 })?;
    let texts = vec!["the cat sat on the mat".to_owned(), "un chat".to_owned()];
    for round in ["computed", "served"] {
        let found = analyser.forward(&["text 1", "text 2"], &texts)?;
        println!("{round}: {:?} {:?} {:?}", found.language, found.shape.range, found.summary);
        assert_eq!(found.letters.size(), [2, 26]);
        assert_eq!((found.shape.words, found.score.1), (vec![6, 2], vec![true, false]));
        assert_eq!((found.language, found.trace), (vec![Language::English, Language::Other], None));
    }
    cache.flush()?;
    for file in std::fs::read_dir(dir.path().join("structured_analysis_v1"))? {
        println!("{}", file?.file_name().display());
    }
    Ok(())
}
