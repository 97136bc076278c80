//! Shows: a real model on real text, through the cache.
//! Run: `cargo xtask demo`, which provides libtorch and the model (`cargo run --example minilm` where they are).
//! Look at: the table: the second epoch and another process compute nothing, and an edited text is computed again.
//!
//! Embeds paragraphs of documentation with all-MiniLM-L6-v2: one epoch that computes them, one that finds them,
//! one in another process, one with a tenth of the texts edited; and searches them (`--query`). How a user's own
//! program would look is in [`model`] (the annotated module) and in [`epoch::fetch`] (its use); the rest reads
//! texts and prints tables.

mod args;
mod bert;
mod cores;
mod corpus;
mod demo;
mod epoch;
mod model;
mod paragraphs;
mod pieces;
mod place;
mod query;
mod record;
#[cfg(test)]
mod reference;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::anyhow;
use tcx::Cache;
use tcx_examples::grouped;

use args::{Args, Mode};
use corpus::Corpus;
use demo::Demo;
use epoch::Stopped;
use model::MiniLm;
use place::Place;

/// What a shell expects of a program that was called wrongly.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error:#}\n\n{}", args::USAGE);
            return ExitCode::from(WRONG_USAGE);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => {
            eprintln!("{error}");
            ExitCode::from(epoch::INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    if args.mode == Mode::Help {
        print!("{}", args::USAGE);
        return Ok(());
    }
    let quiet = args.mode == Mode::Epoch;
    let model = args.model()?;
    let corpus = Corpus::read(args.folder.as_deref(), args.limit)?;
    let place = Place::take(&args.cache, args.fresh)?;
    if !quiet {
        introduce(&corpus, &place);
    }
    epoch::stop_on_ctrl_c()?;
    let start = Instant::now();
    let module = MiniLm::load(&model)?;
    if !quiet {
        let (model, seconds) = (model.display(), start.elapsed().as_secs_f64());
        eprintln!("model    {model} (loaded in {seconds:.1} s, {} threads)\n", tcx_examples::cores());
    }

    let cache = Cache::builder().progress(true).open(place.rows())?;
    let elsewhere = "or remove this cache with `--fresh`, or name another one with `--cache`";
    let cached = cache.module(module).map_err(|error| anyhow!("{error}\n  {elsewhere}"))?;
    match args.mode {
        Mode::Query => query::query(&cached, &corpus, args.batch, &args.query)?,
        Mode::Epoch => println!("{}", epoch::epoch(&cached, &corpus.passages, args.batch, drop)?),
        _ => Demo { args, model: &model, place: &place, corpus: &corpus, cached: &cached }.run()?,
    }
    Ok(cache.close()?)
}

fn introduce(corpus: &Corpus, place: &Place) {
    let (taken, found) = (corpus.passages.len(), corpus.found);
    let of = if taken < found { format!(" of {}", grouped(found as u64)) } else { String::new() };
    let folder = corpus.folder.display();
    eprintln!("texts    {}{of} paragraphs of documentation in {folder}", grouped(taken as u64));
    let cache = place.rows();
    eprintln!("cache    {}", std::path::absolute(&cache).unwrap_or(cache).display());
}
