//! `tcx top`: rows and bytes of each module, and how fast they grow, refreshed until the user stops it.
//!
//! A program's own progress bar shows only what that program computes. Several workers, perhaps on several machines, may
//! fill one cache directory, and only this command shows all of them together. `watch tcx ls` shows no rates: they need two
//! snapshots.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use tcx_store::{Inspection, SegmentState, Store};

use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::output::{Output, Report, Table};
use crate::failure::{Code, Result, Verdict};
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
    /// Files that are being written, or were left by a killed process. An object store shows none.
    temporary: u64,
    /// The time at which the oldest row of the newest segment was computed; in an object store, that at which the newest arrived.
    newest_ms: Option<u64>,
    /// Since the last snapshot; `None` in the first.
    rows_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    #[serde(skip)]
    newest: Option<SystemTime>,
}

/// Where the modules are.
enum Place {
    Directory(PathBuf),
    /// With the modules that were opened so far: each is listed again, and not opened again.
    Store(Box<StoreCache>, BTreeMap<String, Arc<Store>>),
}

pub(super) fn run(dir: &Path, every: Duration, output: &Output) -> Result<Verdict> {
    let mut place = Place::of(dir)?;
    let mut last = Snapshot::new(&mut place, None)?;
    if output.is_json() || !io::stdout().is_terminal() {
        output.show(&last)?;
        return Ok(Verdict::Good);
    }
    let mut failed = None;
    // Until the user presses Ctrl-C.
    loop {
        print!("{REDRAW}");
        output.show(&last)?;
        if let Some(failed) = failed.take() {
            println!("\nnot refreshed: {failed}");
        }
        sleep(every.max(Duration::from_millis(100)));
        match Snapshot::new(&mut place, Some(&last)) {
            Ok(next) => last = next,
            Err(error) => failed = Some(error),
        }
    }
}

impl Place {
    fn of(dir: &Path) -> Result<Self> {
        let store = StoreCache::at(dir)?;
        Ok(store.map_or_else(
            || Self::Directory(dir.to_owned()),
            |store| Self::Store(store.into(), BTreeMap::new()),
        ))
    }

    /// Without a module that is being removed, or whose change 0 is damaged.
    fn modules(&mut self) -> Result<Vec<Module>> {
        match self {
            Self::Directory(dir) => {
                let all = cache::all(dir)?.into_iter();
                Ok(all
                    .filter_map(|name| {
                        Inspection::open(&dir.join(&name)).ok().map(|own| Module::new(name, &own))
                    })
                    .collect())
            }
            Self::Store(store, opened) => {
                let all = store.chosen(None)?;
                opened.retain(|name, _| all.contains(name));
                let modules = all.into_iter().map(|name| Module::in_store(store, opened, name));
                // A store that does not answer has the module all the same.
                modules.filter(|own| own.as_ref().err().is_none_or(|error| error.code == Code::Io)).collect()
            }
        }
    }
}

impl Snapshot {
    fn new(place: &mut Place, last: Option<&Self>) -> Result<Self> {
        let at = Instant::now();
        let mut modules = place.modules()?;
        for module in &mut modules {
            let before = last
                .and_then(|last| Some((last, last.modules.iter().find(|own| own.module == module.module)?)));
            if let Some((last, before)) = before {
                let seconds = at.duration_since(last.at).as_secs_f64().max(1e-3);
                let rate = |now: u64, before: u64| Some((now as f64 - before as f64) / seconds);
                module.rows_per_second = rate(module.rows, before.rows);
                module.bytes_per_second = rate(module.bytes, before.bytes);
            }
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

    fn in_store(
        store: &StoreCache,
        opened: &mut BTreeMap<String, Arc<Store>>,
        module: String,
    ) -> Result<Self> {
        // One that fails is opened again the next time.
        let own = match opened.remove(&module) {
            Some(own) => own.refresh().map(|()| own)?,
            None => store.open(&module, &cache::options(true))?,
        };
        let (stats, files) = (own.stats(), store.files(&module)?);
        opened.insert(module.clone(), own);
        let newest = files.iter().filter(|own| own.name.starts_with("seg-")).map(|own| own.modified).max();
        Ok(Self {
            module,
            rows: stats.rows,
            bytes: files.iter().map(|own| own.bytes).sum(),
            segments: stats.segments as usize,
            temporary: 0,
            newest_ms: newest.map(human::millis),
            rows_per_second: None,
            bytes_per_second: None,
            newest,
        })
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
