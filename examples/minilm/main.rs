//! Shows: a real model on real text, through the cache.
//! Run: `cargo xtask demo`, which provides libtorch and the model (`cargo run --package tcx-minilm` where they are); with
//! `--backend candle` or `--backend ort`, another library computes, without libtorch.
//! Look at: the table: the second epoch and another process compute nothing, and an edited text is computed again.
//!
//! Embeds paragraphs of documentation with all-MiniLM-L6-v2: one epoch that computes them, one that finds them,
//! one in another process, one with a tenth of the texts edited; and searches them (`--query`). How a user's own
//! program would look is in [`model`] (the annotated module) and in [`epoch::fetch`] (its use); the rest reads
//! texts and prints tables.

mod args;
mod config;
mod corpus;
mod demo;
mod epoch;
mod memory;
mod model;
mod network;
mod paragraphs;
mod pieces;
mod query;
mod record;
#[cfg(test)]
mod reference;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::anyhow;
use clap::Parser;
use indicatif::HumanCount;
use tcx::{Cache, ErrorKind};
use tcx_examples::{INTERRUPTED, Place, Stopped, stop_on_ctrl_c};

use args::Args;
use corpus::Corpus;
use demo::Demo;
use model::MiniLm;

fn main() -> ExitCode {
    // Prints what tcx warns of: damage, a full disk, lost rows.
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => {
            eprintln!("{error}");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let quiet = args.epoch;
    let model = args.model()?;
    let corpus = Corpus::read(args.folder.as_deref(), args.limit)?;
    let place = Place::take(&args.cache, args.fresh, &memory::KIND)?;
    if !quiet {
        introduce(&corpus, &place);
    }
    stop_on_ctrl_c()?;
    let start = Instant::now();
    let module = MiniLm::load(&model)?;
    if !quiet {
        let (model, seconds) = (model.display(), start.elapsed().as_secs_f64());
        eprintln!("model    {model} (loaded in {seconds:.1} s, {} threads)\n", tcx_examples::cores());
    }

    // The epochs draw a bar of their own.
    let cache = Cache::open(place.rows())?;
    let elsewhere = "or remove this cache with `--fresh`, or name another one with `--cache`";
    let cached = cache.module(module).map_err(|error| match error.kind() {
        ErrorKind::Mismatch => anyhow!("{error}\n  {elsewhere}"),
        _ => error.into(),
    })?;
    match &args.query {
        _ if args.epoch => println!("{}", epoch::epoch(&cached, &corpus.passages, args.batch, drop)?),
        Some(question) => query::query(&cached, &corpus, args.batch, question)?,
        None => Demo { args, model: &model, place: &place, corpus: &corpus, cached: &cached }.run()?,
    }
    Ok(cache.close()?)
}

fn introduce(corpus: &Corpus, place: &Place) {
    let (taken, found) = (corpus.passages.len(), corpus.found);
    let of = if taken < found { format!(" of {}", HumanCount(found as u64)) } else { String::new() };
    let folder = corpus.folder.display();
    eprintln!("texts    {}{of} paragraphs of documentation in {folder}", HumanCount(taken as u64));
    let cache = place.rows();
    eprintln!("cache    {}", std::path::absolute(&cache).unwrap_or(cache).display());
}
