//! Shows: ResNet-50 on a folder of images, through the cache.
//! Run: `cargo run --release --example resnet50 -- FOLDER`; without a folder it draws pictures of its own.
//! Look at: the second epoch decodes and computes nothing, and gives the same features, bit for bit.
//!
//! Two epochs over the JPEG and PNG files of a folder: the first decodes and computes what is missing, the second
//! finds everything and decodes nothing. `--like` searches the cached features for the images most like one. How a
//! user's own program would look is in [`model`] (the annotated module), [`epoch::fetch`] (its use) and [`load`]
//! (the loader of what is missing); the rest finds files and prints a table.

mod args;
mod drawn;
mod epoch;
mod like;
mod load;
mod model;
mod pictures;
mod prepare;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use clap::Parser;
use tcx::{Cache, Cached, ErrorKind};
use tcx_examples::{INTERRUPTED, Kind, Line, Place, Stopped, Table, first_name, stop_on_ctrl_c};

use args::Args;
use model::ResNet50;
use pictures::Pictures;

/// The program's own folder.
const KIND: Kind = Kind {
    mark: "resnet50-example.txt",
    title: "A cache that the example `resnet50` of tcx made, and may remove.",
    folders: &[IMAGES],
};
/// The folder in it for the images that the program draws.
const IMAGES: &str = "images";

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
    let place = Place::take(&args.cache, args.fresh, &KIND)?;
    let pictures = Pictures::read(&folder(args, &place)?, args.limit)?;
    pictures.introduce();
    // Each operation of this network is large: libtorch splits it among all threads. It counts the machine's
    // cores, of which a container may be allowed fewer.
    tch::set_num_threads(i32::try_from(tcx_examples::cores())?);
    stop_on_ctrl_c()?;
    let start = Instant::now();
    let module = ResNet50::load(args.weights.as_deref())?;
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("weights  {}, ready in {seconds:.1} s", model::described(args.weights.as_deref()));
    // The epochs draw a bar of their own.
    let cache = Cache::open(place.rows())?;
    eprintln!("cache    {}\n", cache.path().display());
    let elsewhere = "or remove this cache with `--fresh`, or name another one with `--cache`";
    let cached = cache.module(module).map_err(|error| match error.kind() {
        ErrorKind::Mismatch => anyhow!("{error}\n  {elsewhere}"),
        _ => error.into(),
    })?;
    let done = match &args.like {
        Some(file) => like::like(&cached, &pictures, args.batch, file),
        None => epochs(&cached, &pictures, &place, args.batch),
    };
    // What was computed before an error is kept.
    let closed = cache.close();
    done?;
    Ok(closed?)
}

/// The folder of images that the user named, or else the one of those that this program draws.
fn folder(args: &Args, place: &Place) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let folder = place.folder(IMAGES);
    drawn::draw(&folder)?;
    eprintln!("no folder was named: these are patterns that this program draws (see `--help`)");
    Ok(folder)
}

/// Both epochs and the table.
fn epochs(cached: &Cached<ResNet50>, pictures: &Pictures, place: &Place, batch: usize) -> anyhow::Result<()> {
    let run = || epoch::epoch(cached, &pictures.all, batch, drop);
    let first = run()?;
    let first = Line { name: first_name(&first), bytes: place.bytes(), epoch: first };
    let second = Line { name: "warm", epoch: run()?, bytes: place.bytes() };
    ensure!(
        first.epoch.digest == second.epoch.digest,
        "the second epoch got other features than the first: this is a bug of tcx"
    );
    ensure!(
        second.epoch.misses == 0 || cached.stats().rows_dropped > 0,
        "the second epoch computed what the first had kept: this is a bug of tcx"
    );
    let computed = first.epoch.misses > 0;
    let digest = first.epoch.digest.get(..16).unwrap_or_default().to_owned();
    let speed = computed.then(|| first.epoch.misses as f64 / first.epoch.seconds);
    println!("{}", Table { what: "images", lines: vec![first, second], speed });
    println!("- seconds: decoding, computing and writing what is missing, finding the rest");
    println!("- the features of both epochs are the same, bit for bit (blake3 {digest}…)");
    if !computed {
        println!("- everything had been there already: `--fresh` starts again");
    }
    Ok(())
}
