//! Measures how long opening a filled cache takes, and its memory.

use std::time::Instant;

use tcx::Cache;

use crate::data::workload::Workload;
use crate::report::Figures;
use crate::{Result, Settings, machine};

/// Time, and resident memory beyond that of the same process with an empty cache, whose code is in memory.
pub(crate) fn measure<W: Workload>(settings: &Settings, figures: &mut Figures) -> Result<()> {
    let empty = tempfile::tempdir_in(&settings.dir)?;
    let none = Cache::open(empty.path())?.module(W::new())?;
    let before = machine::resident_mib();
    let start = Instant::now();
    let cached = Cache::open(settings.dir.join(W::NAME).join("cache"))?.module(W::new())?;
    figures.add(format!("{}.open.ms", W::NAME), start.elapsed().as_secs_f64() * 1e3);
    match before.zip(machine::resident_mib()) {
        Some((before, after)) => figures.add(format!("{}.open.rss_mib", W::NAME), after - before),
        None => figures.skip("open.rss_mib: the system does not report the resident memory of a process"),
    }
    drop((cached, none));
    Ok(())
}
