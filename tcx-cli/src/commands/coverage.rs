//! `tcx coverage`: reports which ids of a list have rows.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use tcx_store::LookupOptions;

use serde::Serialize;

use crate::args::Module;
use crate::cache;
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Failure, Result, Verdict};
use crate::text::human;
use crate::text::ids;

/// Ids that are looked up together.
const BATCH: usize = 4096;
/// The number of missing ids in the text output.
const SHOWN: usize = 10;

#[derive(Debug, Serialize)]
struct Coverage {
    module: String,
    view: u32,
    ids: usize,
    present: usize,
    missing: Vec<String>,
}

pub(super) fn run(
    module: &Module,
    file: &Path,
    view: u32,
    missing_to: Option<&Path>,
    output: &Output,
) -> Result<Verdict> {
    let store = cache::open(&module.dir, &module.module, &cache::options(true))?;
    let key_type = cache::spec(&module.dir, &module.module)?.key_type();
    let wanted = ids::read(file)?;
    let bar = progress::rows("looking up", wanted.len() as u64);
    let mut missing = Vec::new();
    for batch in wanted.chunks(BATCH) {
        let keys = batch.iter().map(|id| ids::parse(key_type, id)).collect::<Result<Vec<_>>>()?;
        let found = store.lookup_with(ids::keys(key_type, &keys, view)?, LookupOptions::uncounted())?;
        missing.extend(found.all_missing_positions().map(|position| batch[position].clone()));
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    if let Some(path) = missing_to {
        let lines = missing.iter().map(|id| format!("{id}\n")).collect::<Vec<_>>().concat();
        // Never overwrites a file: it could be the list of ids itself.
        let written = File::create_new(path).and_then(|mut file| file.write_all(lines.as_bytes()));
        written.map_err(|error| Failure::file("write", path, &error))?;
    }
    let is_complete = missing.is_empty();
    let (ids, present) = (wanted.len(), wanted.len() - missing.len());
    output.show(&Coverage { module: module.module.clone(), view, ids, present, missing })?;
    Ok(Verdict::good_if(is_complete))
}

impl Report for Coverage {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let (present, ids) = (human::count(self.present as u64), human::count(self.ids as u64));
        // Rounded down, so that 100 % means all ids.
        let thousandths = (self.present * 1000).checked_div(self.ids).unwrap_or(1000);
        writeln!(to, "{present} of {ids} ids have rows ({}.{} %)", thousandths / 10, thousandths % 10)?;
        for id in self.missing.iter().take(SHOWN) {
            writeln!(to, "missing: {id}")?;
        }
        match self.missing.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(to, "and {} more (--missing-to FILE lists them all)", human::count(more as u64)),
        }
    }
}
