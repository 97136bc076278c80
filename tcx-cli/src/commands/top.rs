//! `tcx top`: rows and bytes of each module, and how fast they grow, refreshed until the user stops it.
//!
//! A program's own progress bar shows only what that program computes. Several workers, perhaps on several machines, may
//! fill one cache directory, and only this command shows all of them together. `watch tcx ls` shows no rates: they need two
//! snapshots.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use tcx_store::{Inspection, SegmentState};

use crate::cache;
use crate::console::output::{Output, Report, Table};
use crate::failure::{Result, Verdict};
use crate::text::human;

/// Moves to the upper left corner and clears the screen.
const REDRAW: &str = "\x1b[H\x1b[J";

#[derive(Debug, Serialize)]
struct Snapshot {
    modules: Vec<Module>,
    #[serde(skip)]
    at: Instant,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    rows: u64,
    bytes: u64,
    segments: usize,
    /// Files that are being written, or were left by a killed process.
    temporary: u64,
    /// The time at which the oldest row of the newest segment was computed.
    newest_ms: Option<u64>,
    /// Since the last snapshot; `None` in the first.
    rows_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    #[serde(skip)]
    newest: Option<SystemTime>,
}

pub(super) fn run(dir: &Path, every: Duration, output: &Output) -> Result<Verdict> {
    let mut last = Snapshot::new(dir, None)?;
    if output.is_json() || !io::stdout().is_terminal() {
        output.show(&last)?;
        return Ok(Verdict::Good);
    }
    // Until the user presses Ctrl-C.
    loop {
        print!("{REDRAW}");
        output.show(&last)?;
        sleep(every.max(Duration::from_millis(100)));
        last = Snapshot::new(dir, Some(&last))?;
    }
}

impl Snapshot {
    fn new(dir: &Path, last: Option<&Self>) -> Result<Self> {
        let at = Instant::now();
        let mut modules = Vec::new();
        for name in cache::all(dir)? {
            // Skips a module that is being removed, or whose change 0 is damaged.
            let Ok(inspection) = Inspection::open(&dir.join(&name)) else { continue };
            let mut module = Module::new(name, &inspection);
            let before = last
                .and_then(|last| Some((last, last.modules.iter().find(|own| own.module == module.module)?)));
            if let Some((last, before)) = before {
                let seconds = at.duration_since(last.at).as_secs_f64().max(1e-3);
                let rate = |now: u64, before: u64| Some((now as f64 - before as f64) / seconds);
                module.rows_per_second = rate(module.rows, before.rows);
                module.bytes_per_second = rate(module.bytes, before.bytes);
            }
            modules.push(module);
        }
        Ok(Self { modules, at })
    }
}

impl Module {
    fn new(module: String, inspection: &Inspection) -> Self {
        let served = || inspection.segments().filter(|own| own.state == SegmentState::Served);
        let newest = served().map(|own| own.born).max();
        Self {
            module,
            rows: served().map(|own| own.rows).sum(),
            bytes: cache::bytes(inspection),
            segments: served().count(),
            temporary: inspection.other_files().temporary,
            newest_ms: newest.map(human::millis),
            rows_per_second: None,
            bytes_per_second: None,
            newest,
        }
    }
}

/// A decrease, after files were removed, is shown as zero.
fn rate(per_second: Option<f64>, show: impl FnOnce(u64) -> String) -> String {
    per_second.map_or_else(|| "-".to_owned(), |rate| format!("{}/s", show(rate.max(0.0).round() as u64)))
}

impl Report for Snapshot {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let headings =
            ["MODULE", ">ROWS", ">ROWS/S", ">BYTES", ">BYTES/S", ">SEGMENTS", ">BEING WRITTEN", "NEWEST"];
        let mut table = Table::new(&headings);
        for module in &self.modules {
            table.line([
                module.module.clone(),
                human::count(module.rows),
                rate(module.rows_per_second, human::count),
                human::size(module.bytes),
                rate(module.bytes_per_second, human::size),
                human::count(module.segments as u64),
                human::count(module.temporary),
                module.newest.map_or_else(|| "-".to_owned(), human::ago),
            ]);
        }
        table.write(to)
    }
}
