//! Search: the passages whose embeddings are most like that of a question.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use indicatif::HumanCount;
use tcx::Cached;

use crate::corpus::{Corpus, Passage};
use crate::epoch::{epoch, fetch};
use crate::model::{MiniLm, dot, numbers};

/// How many passages are shown.
const SHOWN: usize = 5;
/// How much of each, in letters.
const EXCERPT: usize = 400;

/// Prints the passages that answer `question` best.
pub(crate) fn query(
    cached: &Cached<MiniLm>,
    corpus: &Corpus,
    batch: usize,
    question: &str,
) -> anyhow::Result<()> {
    // A question is a text like any other; asked again, it is in the cache.
    let nowhere: Rc<Path> = Path::new("").into();
    let question = numbers(&fetch(cached, &[Passage::new(question.to_owned(), &nowhere, 0)])?)?.concat();
    let mut batches = Vec::new();
    let done = epoch(cached, &corpus.passages, batch, |embedding| batches.push(embedding))?;
    let start = Instant::now();
    let mut scores = Vec::with_capacity(corpus.passages.len());
    for batch in &batches {
        scores.extend(numbers(batch)?.iter().map(|row| dot(row, &question)));
    }
    let mut best: Vec<usize> = (0..scores.len()).collect();
    best.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    eprintln!(
        "{} embeddings in {:.3} s ({} from the cache, {} computed), searched in {:.3} s\n",
        HumanCount(done.rows),
        done.seconds,
        HumanCount(done.hits),
        HumanCount(done.misses),
        start.elapsed().as_secs_f64()
    );
    for &place in best.iter().take(SHOWN) {
        let (score, passage) = (scores[place], &corpus.passages[place]);
        println!("{score:.3}  {}\n       {}\n", passage.place(), excerpt(&passage.text));
    }
    Ok(())
}

/// The beginning of a long text.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{} …", text[..end].trim_end()),
        None => text.to_owned(),
    }
}
