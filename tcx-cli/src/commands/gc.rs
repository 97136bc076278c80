//! `tcx compact` joins segments; `tcx gc` removes files that were replaced.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tcx_store::{Inspection, SegmentState};

use super::{in_store, rm};
use crate::args::{Deleting, Modules};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::ask::confirm;
use crate::console::output::{Output, Report};
use crate::failure::{Result, Verdict};
use crate::text::human;

/// Files that are younger stay, if nothing else is said.
const STAY: Duration = Duration::from_mins(1);

#[derive(Debug, Serialize)]
pub(super) struct Compacted {
    pub(super) modules: Vec<Joined>,
}

#[derive(Debug, Serialize)]
pub(super) struct Joined {
    pub(super) module: String,
    pub(super) segments_before: usize,
    pub(super) segments_after: usize,
    /// Bytes that `tcx gc` can remove now; `None` in an object store, where machines may read them for an hour.
    pub(super) reclaimable_bytes: Option<u64>,
}

pub(super) fn compact(modules: &Modules, output: &Output) -> Result<Verdict> {
    if let Some(store) = StoreCache::at(&modules.dir)? {
        return in_store::compact(&store, modules, output);
    }
    let mut done = Vec::new();
    for module in cache::chosen(&modules.dir, modules.module.as_deref())? {
        let before = cache::inspect(&modules.dir, &module)?;
        note_damage(&before);
        cache::open(&modules.dir, &module, &cache::options(false))?.compact()?;
        let after = cache::inspect(&modules.dir, &module)?;
        done.push(Joined {
            module,
            segments_before: served(&before),
            segments_after: served(&after),
            reclaimable_bytes: Some(reclaimable(&after).map(|(_, bytes)| bytes).sum()),
        });
    }
    output.show(&Compacted { modules: done })?;
    Ok(Verdict::Good)
}

/// Explains why nothing will be joined or removed.
fn note_damage(inspection: &Inspection) {
    if !inspection.has_sound_changes() {
        let module = inspection.folder();
        Output::note(&format!(
            "{module}: a change is damaged, so nothing is joined or removed; run `tcx verify --repair`"
        ));
    }
}

fn served(inspection: &Inspection) -> usize {
    inspection.segments().filter(|own| own.state == SegmentState::Served).count()
}

/// The reclaimable segments, from their footers.
fn reclaimable(inspection: &Inspection) -> impl Iterator<Item = (&str, u64)> {
    let segments = inspection.segments();
    let can_go = segments.filter(|own| own.state.is_reclaimable());
    can_go.map(|own| (own.name.as_str(), own.bytes))
}

impl Report for Compacted {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for Joined { module, segments_before, segments_after, reclaimable_bytes } in &self.modules {
            write!(
                to,
                "{module}: {segments_before} → {}",
                human::counted(*segments_after as u64, "segment")
            )?;
            match reclaimable_bytes {
                None | Some(0) => writeln!(to)?,
                Some(bytes) => writeln!(to, "; `tcx gc` frees {}", human::size(*bytes))?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Collected {
    pub(super) dry_run: bool,
    pub(super) modules: Vec<Collection>,
    /// Remains of modules that were removed.
    pub(super) leftovers: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
pub(super) struct Collection {
    pub(super) module: String,
    /// The number of files removed; in a dry run, a lower bound.
    pub(super) files: usize,
    pub(super) bytes: u64,
}

pub(super) fn run(
    modules: &Modules,
    age: Option<Duration>,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    if let Some(store) = StoreCache::at(&modules.dir)? {
        return in_store::gc(&store, modules, age, deleting, output);
    }
    let age = age.unwrap_or(STAY);
    let (names, leftovers) = match &modules.module {
        Some(module) => (cache::chosen(&modules.dir, Some(module))?, Vec::new()),
        None => everything(&modules.dir)?,
    };
    let mut planned = Vec::new();
    for name in names {
        let inspection = cache::inspect(&modules.dir, &name)?;
        note_damage(&inspection);
        let (files, bytes) =
            reclaimable(&inspection).fold((0, 0), |(n, sum), (_, bytes)| (n + 1, sum + bytes));
        planned.push(Collection { module: name, files, bytes });
    }
    if !deleting.dry_run {
        let bytes = match planned.iter().map(|own| own.bytes).sum() {
            0 => String::new(),
            bytes => format!(" (at least {})", human::size(bytes)),
        };
        // Confirmed even for 0 bytes: collection also removes the files of a crash, and files replaced in the meantime.
        let action = format!(
            "remove the replaced files of {}{bytes}",
            human::counted(planned.len() as u64, "module"),
        );
        if !planned.is_empty() || !leftovers.is_empty() {
            confirm(deleting.yes, &action)?;
        }
        for collection in &mut planned {
            collect(&modules.dir, collection, age)?;
        }
        leftovers.iter().try_for_each(|path| rm::remove_folder(path))?;
    }
    output.show(&Collected { dry_run: deleting.dry_run, modules: planned, leftovers })?;
    Ok(Verdict::Good)
}

/// The modules of a cache, and the remains of removed ones, which may be all that is left.
fn everything(dir: &Path) -> Result<(Vec<String>, Vec<PathBuf>)> {
    let modules = cache::place::any(dir)?;
    let leftovers = rm::leftovers(dir)?;
    let names = if leftovers.is_empty() { cache::all(dir)? } else { modules };
    Ok((names, leftovers))
}

fn collect(dir: &Path, collection: &mut Collection, age: Duration) -> Result<()> {
    let before = cache::bytes(&cache::inspect(dir, &collection.module)?);
    let store = cache::open(dir, &collection.module, &cache::options(false))?;
    collection.files = store.collect(age)?;
    drop(store);
    collection.bytes = before.saturating_sub(cache::bytes(&cache::inspect(dir, &collection.module)?));
    Ok(())
}

impl Report for Collected {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let did = if self.dry_run { "would remove at least" } else { "removed" };
        for Collection { module, files, bytes } in &self.modules {
            let files = human::counted(*files as u64, "file");
            writeln!(to, "{module}: {did} {files}, {}", human::size(*bytes))?;
        }
        for path in &self.leftovers {
            writeln!(to, "{}: {did} the remains of a module", path.display())?;
        }
        Ok(())
    }
}
