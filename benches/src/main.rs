//! `cargo xtask bench`: measures how fast rows are read and written, compared with the limits of the machine and with other
//! stores. All take turns in the same run, and the figures are ratios, so that a change of the machine's speed affects all.
//!
//! Each phase runs in a process of its own, so that it does not profit from the memory of another. A ratio above 1 means that
//! tcx is faster, unless the name of the figure says otherwise (`overhead`, `mib`, `ms`).
//!
//! Some figures have floors. A whole run, and one with `--check`, fails if a figure is worse.

mod data;
mod machine;
mod phases;
mod report;
mod rivals;
mod settings;

use std::process::{Command, ExitCode};

use data::workload::{W1, W2, W4};
use phases::child::Phase;
#[cfg(feature = "full")]
use phases::libraries;
use phases::{
    allocations, child, cli, cold, compressed, concurrent, e2e, fill, growth, index, open, package, python,
    ragged, read, steady,
};
use report::{Figures, Report};
use settings::{Result, Settings};

/// The phases in order; later ones use the files of earlier ones.
const PHASES: &[Phase] = &[
    Phase { name: "w1.fill", run: fill::measure::<W1> },
    Phase { name: "w1.read", run: read::measure::<W1> },
    #[cfg(feature = "full")]
    Phase { name: "w1.libraries", run: libraries::measure::<W1> },
    Phase { name: "w1.cold", run: cold::measure::<W1> },
    Phase { name: "w1.python", run: python::measure::<W1> },
    Phase { name: "w1.package", run: package::measure::<W1> },
    Phase { name: "w1.steady", run: steady::measure::<W1> },
    Phase { name: "w1.done", run: fill::clear::<W1> },
    Phase { name: "w2.fill", run: fill::measure::<W2> },
    Phase { name: "w2.open", run: open::measure::<W2> },
    Phase { name: "w2.read", run: read::measure::<W2> },
    #[cfg(feature = "full")]
    Phase { name: "w2.libraries", run: libraries::measure::<W2> },
    Phase { name: "w2.cold", run: cold::measure::<W2> },
    Phase { name: "w2.allocations", run: allocations::measure::<W2> },
    Phase { name: "w2.python", run: python::measure::<W2> },
    Phase { name: "w2.done", run: fill::clear::<W2> },
    Phase { name: "w3.fill", run: ragged::fill },
    Phase { name: "w3.cold", run: ragged::cold },
    Phase { name: "w3.read", run: ragged::read },
    Phase { name: "w4.fill", run: fill::measure::<W4> },
    Phase { name: "w4.cold", run: cold::measure::<W4> },
    Phase { name: "w4.done", run: fill::clear::<W4> },
    Phase { name: "compressed", run: compressed::measure },
    Phase { name: "concurrency", run: concurrent::measure },
    Phase { name: "e2e", run: e2e::measure },
    Phase { name: "growth", run: growth::measure },
    Phase { name: "cli", run: cli::measure },
    Phase { name: "engine", run: index::measure },
];

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tch::set_num_threads(1);
    match words[..] {
        [child::WORD, phase, quick, dir] => {
            let settings = Settings { quick: quick == "quick", dir: dir.into() };
            child::run(PHASES, phase, &settings)?;
            Ok(ExitCode::SUCCESS)
        }
        [] => bench(false, true),
        ["--quick"] => bench(true, false),
        ["--check"] => bench(true, true),
        ["--python"] => python(),
        _ => {
            Err(format!("expected nothing, `--quick`, `--check` or `--python`, found `{}`", words.join(" "))
                .into())
        }
    }
}

/// The phases of the Python package, and what they need.
const PYTHON: [&str; 2] = ["w1.fill", "w1.package"];

/// Measures the Python package alone, and prints its figures. No report is written: one has all figures.
fn python() -> Result<ExitCode> {
    let dir = tempfile::tempdir_in(machine::target()?)?;
    let settings = Settings { quick: false, dir: dir.path().to_owned() };
    for phase in PYTHON {
        eprintln!("· {phase}");
        let figures = child::start(phase, &settings)?;
        for (name, value) in figures.under("python.") {
            println!("python.{name}: {value}");
        }
        figures.skipped().for_each(|why| println!("skipped: {why}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn bench(quick: bool, is_checked: bool) -> Result<ExitCode> {
    // Otherwise the files of the build are still being written and slow down the fills.
    if let Err(error) = Command::new("sync").status() {
        eprintln!("without `sync`, the fills may be slower than they are: {error}");
    }
    // On the disk of the checkout: a temporary folder may be in memory.
    let dir = tempfile::tempdir_in(machine::target()?)?;
    let settings = Settings { quick, dir: dir.path().to_owned() };
    let mut figures = Figures::default();
    for phase in PHASES {
        eprintln!("· {}", phase.name);
        figures.extend(child::start(phase.name, &settings)?);
    }
    let is_good = Report::new(figures, quick, is_checked).write()?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
