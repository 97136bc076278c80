//! Search: the passages whose embeddings are most like that of a question.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use indicatif::HumanCount;
use tch::Tensor;
use tcx::Cached;

use crate::corpus::{Corpus, Passage};
use crate::epoch::{epoch, fetch};
use crate::model::MiniLm;

/// How many passages are shown.
const SHOWN: i64 = 5;
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
    let question = fetch(cached, &[Passage::new(question.to_owned(), &nowhere, 0)])?;
    let mut scores = Vec::new();
    let done = epoch(cached, &corpus.passages, batch, |embedding| {
        scores.push(embedding.matmul(&question.transpose(0, 1)).squeeze_dim(1));
    })?;
    let start = Instant::now();
    let scores = Tensor::cat(&scores, 0);
    let (best, places) = scores.topk(SHOWN.min(scores.size()[0]), 0, true, true);
    let best = Vec::<f32>::try_from(best)?;
    let places = Vec::<i64>::try_from(places)?;
    eprintln!(
        "{} embeddings in {:.3} s ({} from the cache, {} computed), searched in {:.3} s\n",
        HumanCount(done.rows),
        done.seconds,
        HumanCount(done.hits),
        HumanCount(done.misses),
        start.elapsed().as_secs_f64()
    );
    for (score, place) in best.iter().zip(places) {
        let passage = &corpus.passages[place as usize];
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
