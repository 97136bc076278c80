//! Measures the command `tcx` on large caches.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tcx_store::{Column, ColumnType, DType, Identity, KeyType, Keys, Options, Spec, Store};

use crate::report::{Figures, ROUNDS, median};
use crate::{Result, Settings};

/// The number of starts of a short command: most of its time is the start of a process, which varies.
const STARTS: usize = 25;
/// Rows that are inserted together.
const BATCH: usize = 10_000;

const SMALL: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[4] };
const LARGE: ColumnType = ColumnType::Dense { dtype: DType::F32, shape: &[2048] };

/// The path of the command, beside this program.
fn tcx() -> Result<Option<PathBuf>> {
    let path = std::env::current_exe()?.with_file_name("tcx");
    Ok(path.is_file().then_some(path))
}

pub(crate) fn measure(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let Some(tcx) = tcx()? else {
        figures.skip("cli: there is no `tcx` beside this program: cargo build --release --package tcx-cli");
        return Ok(());
    };
    let small = tempfile::tempdir_in(&settings.dir)?;
    fill(small.path(), &SMALL, 10_000_000, 1000)?;
    let (mut starts, mut listings) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        starts.push(timed(Command::new(&tcx).arg("--version"))?);
        listings.push(timed(Command::new(&tcx).arg("ls").arg(small.path()))?);
    }
    figures.add("cli.ls_10m_ms", (median(&listings) - median(&starts)) * 1e3);
    verify(&tcx, small.path(), "cli.verify.small_rows.vs_cat", figures)?;
    drop(small);
    let large = tempfile::tempdir_in(&settings.dir)?;
    fill(large.path(), &LARGE, settings.rows(1 << 17), 100)?;
    verify(&tcx, large.path(), "cli.verify.vs_cat", figures)
}

/// Writes `rows` rows, `distinct` of which differ, and lets the store join them as usual.
fn fill(dir: &Path, output: &ColumnType, rows: usize, distinct: usize) -> Result<()> {
    let spec = Spec::new("m_v1", KeyType::Int, output, Identity::default(), Vec::new())?;
    let width: usize = spec.leaves().iter().filter_map(|leaf| leaf.kind.width()).sum();
    let noise: Vec<u8> = (0..distinct * width).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    let store = Store::open(dir, spec, &Options::default())?;
    for first in (0..rows).step_by(BATCH) {
        let keys: Vec<i64> = (first..rows.min(first + BATCH)).map(|key| key as i64).collect();
        let mut found = store.lookup(Keys::ints(keys, 0))?;
        let missing = found.distinct_missing_positions();
        let values: Vec<u8> = noise.iter().copied().cycle().take(missing.len() * width).collect();
        store.insert(&mut found, &missing, vec![Column::dense(&values)])?;
    }
    store.flush()?;
    store.compact()?;
    store.collect(Duration::ZERO)?;
    Ok(())
}

/// How fast every byte is verified, compared with `cat`: all of them are in memory.
fn verify(tcx: &Path, dir: &Path, figure: &str, figures: &mut Figures) -> Result<()> {
    let files = std::fs::read_dir(dir.join("m_v1"))?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.is_file());
    let (mut cats, mut verifications) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let times =
            [timed(Command::new("cat").args(&files))?, timed(Command::new(tcx).arg("verify").arg(dir))?];
        // The first round loads them into memory.
        if round > 0 {
            cats.push(times[0]);
            verifications.push(times[1]);
        }
    }
    figures.ratio(figure, &cats, &verifications);
    Ok(())
}

fn timed(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let took = start.elapsed();
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}
