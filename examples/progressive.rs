//! Shows: a fill that goes on where it stopped, in another process, and a data set that grows.
//! Run: `cargo run --example progressive`
//! Look at: each run computes only what none before it has; the interrupted one loses nothing that was finished.

use std::path::Path;
use std::process::Command;

use tcx::{Cache, Error, Extractor, cached_module};

#[cached_module(id = "progressive_words_v1", key = i64)]
struct Words {}

impl Extractor for Words {
    type Input = Vec<String>;
    type Output = (Vec<i64>, Vec<String>);

    fn forward(&self, texts: &Vec<String>) -> tcx::Result<Self::Output> {
        let words = texts.iter().map(|text| text.split(' ').count() as i64).collect();
        Ok((words, texts.iter().map(|text| text.to_uppercase()).collect()))
    }
}

/// One run: warms the cache for the ids below `count`, and is interrupted when it is asked for `stop`.
fn run(dir: &Path, count: i64, stop: i64) -> tcx::Result<()> {
    let words = Cache::open(dir)?.module(Words {})?.batch_size(10);
    let ids: Vec<i64> = (0..count).collect();
    let before = words.coverage(&ids)?.found();
    let warmed = words.warm(&ids, |missing| {
        if missing.ids().any(|id| *id == stop) {
            return Err(Error::loader("interrupted")); // Ctrl-C, a failed read, the end of a job's time
        }
        Ok(missing.ids().map(|id| format!("the text of sample {id}")).collect())
    });
    let after = words.coverage(&ids)?.found();
    println!("of {count} samples {before} were there, {} are computed now", after - before);
    warmed.map(drop)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Prints what tcx reports: damage, a full disk, lost rows, and a summary of each module at the end.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [dir, count, stop] = &args[..] {
        return Ok(run(Path::new(dir), count.parse()?, stop.parse()?)?);
    }
    let dir = tempfile::tempdir()?;
    let start = |count: i64, stop: i64| -> std::io::Result<String> {
        let mut process = Command::new(std::env::current_exe()?);
        let output = process.arg(dir.path()).args([count.to_string(), stop.to_string()]).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        print!("{said}");
        Ok(said)
    };
    // Interrupted in its fourth batch; gone on; the data set has grown; nothing left to do.
    assert!(start(100, 35)?.contains("0 were there, 30 are computed"));
    assert!(start(100, -1)?.contains("30 were there, 70 are computed"));
    assert!(start(120, -1)?.contains("100 were there, 20 are computed"));
    assert!(start(120, -1)?.contains("120 were there, 0 are computed"));
    Ok(())
}
