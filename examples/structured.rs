//! Shows: an output with nested structs, text, classes, arrays, values that may be absent, and tensors that differ in size.
//! Run: `cargo run --example structured`
//! Look at: what is served is what was computed, part by part; on disk each part is a column that any Arrow reader opens.

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
    summary: Vec<String>,         // text of any length
    longest: Vec<Option<String>>, // of a text that has a word, none of one that has not
    #[tensor(f32, [_, 2], store = f16)]
    words: Vec<Tensor>, // two numbers for each word: a row per text, each of its own size
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
        let lens = |text: &String| text.split_whitespace().map(|word| word.len() as i32).collect::<Vec<_>>();
        let range = |text| [*lens(text).iter().min().unwrap_or(&0), *lens(text).iter().max().unwrap_or(&0)];
        let sizes = |text: &String| {
            let words = text.split_whitespace().flat_map(|word| [word.len() as f32, vowels(word)]);
            Tensor::f_from_slice(&words.collect::<Vec<_>>())?.f_view([-1, 2])
        };
        let longest =
            |text: &String| text.split_whitespace().max_by_key(|word| word.len()).map(str::to_owned);
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
            longest: texts.iter().map(longest).collect(),
            words: texts.iter().map(sizes).collect::<Result<_, _>>()?,
            trace: Some("seen by `forward` only".to_owned()),
        })
    }
}

fn vowels(word: &str) -> f32 {
    word.chars().filter(|c| "aeiou".contains(*c)).count() as f32
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let dir = tempfile::tempdir()?;
    let cache = Cache::open(dir.path())?;
    let analyser = cache.module(Analyser { long: 20 })?;
    let texts = vec!["the cat sat on the mat".to_owned(), "un chat".to_owned(), " ".to_owned()];
    for round in ["computed", "served"] {
        let found = analyser.forward(&["text 1", "text 2", "text 3"], &texts)?;
        println!("{round}: {:?} {:?} {:?}", found.language, found.shape.range, found.longest);
        assert_eq!(found.letters.size(), [3, 26]);
        assert_eq!((found.shape.words, found.score.1), (vec![6, 2, 0], vec![true, false, false]));
        assert_eq!(found.language, [Language::English, Language::Other, Language::Other]);
        assert_eq!(found.longest, [Some("mat".to_owned()), Some("chat".to_owned()), None]);
        let sizes: Vec<Vec<i64>> = found.words.iter().map(Tensor::size).collect();
        assert_eq!(sizes, [[6, 2], [2, 2], [0, 2]], "each text has as many rows as words");
        assert_eq!(Vec::<f32>::try_from(found.words[1].flatten(0, -1))?, [2., 1., 4., 1.]);
        assert_eq!(found.trace, None, "a skipped field is not cached, and not returned by a miss either");
    }
    assert_eq!((analyser.stats().misses, analyser.stats().hits), (3, 3));
    cache.flush()?;
    for file in std::fs::read_dir(dir.path().join("structured_analysis_v1"))? {
        println!("{}", file?.file_name().display());
    }
    Ok(())
}
