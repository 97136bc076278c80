//! `tcx prune`: removes the oldest rows.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tcx_store::{Inspection, Options, SegmentFacts, SegmentState};

use crate::args::{Deleting, Modules};
use crate::cache;
use crate::console::ask::confirm;
use crate::console::output::{Output, Report};
use crate::failure::{Result, Verdict};
use crate::text::human;

/// The limits to meet.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) max_size: Option<u64>,
    pub(super) older_than: Option<Duration>,
}

#[derive(Debug, Serialize)]
struct Pruned {
    dry_run: bool,
    bytes_before: u64,
    bytes_after: u64,
    modules: Vec<Module>,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    segments: usize,
    rows: u64,
    bytes: u64,
    /// The bytes removed to meet the size limit, not because they are reclaimable or too old.
    #[serde(skip)]
    evicted: u64,
}

pub(super) fn run(
    modules: &Modules,
    limits: &Limits,
    deleting: Deleting,
    output: &Output,
) -> Result<Verdict> {
    let mut inspections = BTreeMap::new();
    for name in cache::chosen(&modules.dir, modules.module.as_deref())? {
        inspections.insert(name.clone(), cache::inspect(&modules.dir, &name)?);
    }
    let before: u64 = inspections.values().map(cache::bytes).sum();
    let plan = plan(&inspections, before, limits);
    let freed: u64 = plan.iter().map(|own| own.bytes).sum();
    if !deleting.dry_run && freed > 0 {
        let rows = plan.iter().map(|own| own.rows).sum();
        let action = format!("remove {} ({})", human::counted(rows, "row"), human::size(freed));
        confirm(deleting.yes, &action)?;
        for own in &plan {
            remove(&modules.dir, own, limits)?;
        }
    }
    let mut after = before - freed;
    if !deleting.dry_run {
        after = 0;
        for name in inspections.keys() {
            after += cache::bytes(&cache::inspect(&modules.dir, name)?);
        }
    }
    output.show(&Pruned {
        dry_run: deleting.dry_run,
        bytes_before: before,
        bytes_after: after,
        modules: plan,
    })?;
    Ok(Verdict::Good)
}

/// The segments to remove, by module: reclaimable ones, those that are too old, and the oldest of all modules until the rest
/// meets the size limit.
fn plan(inspections: &BTreeMap<String, Inspection>, before: u64, limits: &Limits) -> Vec<Module> {
    let oldest_kept = limits.older_than.and_then(|age| SystemTime::now().checked_sub(age));
    let is_old = |own: &SegmentFacts| oldest_kept.is_some_and(|oldest| own.born < oldest);
    let mut gone: BTreeMap<&str, Module> = BTreeMap::new();
    let (mut left, mut rest) = (before, Vec::new());
    for (name, inspection) in inspections {
        let rows: u64 = inspection.segments().map(|own| own.rows).sum();
        let runs = inspection.other_files().run_bytes;
        // The segment with its share of the index, which is removed with it.
        let size = |own: &SegmentFacts| own.bytes + (runs * own.rows).checked_div(rows).unwrap_or(0);
        for own in inspection.segments() {
            let is_reclaimable = matches!(own.state, SegmentState::Replaced | SegmentState::Dead);
            if is_reclaimable || own.state == SegmentState::Served && is_old(own) {
                left = left.saturating_sub(size(own));
                gone.entry(name).or_insert_with(|| Module::new(name)).take(own);
            } else if own.state == SegmentState::Served {
                rest.push((own.born, name, own, size(own)));
            }
        }
    }
    rest.sort_by(|a, b| (a.0, &a.2.name).cmp(&(b.0, &b.2.name)));
    for (_, name, own, size) in rest {
        if limits.max_size.is_none_or(|max| left <= max) {
            break;
        }
        left = left.saturating_sub(size);
        let module = gone.entry(name).or_insert_with(|| Module::new(name));
        module.take(own);
        module.evicted += own.bytes;
    }
    gone.into_values().collect()
}

impl Module {
    fn new(module: &str) -> Self {
        Self { module: module.to_owned(), segments: 0, rows: 0, bytes: 0, evicted: 0 }
    }

    fn take(&mut self, own: &SegmentFacts) {
        self.segments += 1;
        self.rows += if own.state == SegmentState::Served { own.rows } else { 0 };
        self.bytes += own.bytes;
    }
}

/// Removes the planned segments: like the plan, the engine removes the oldest first.
fn remove(dir: &Path, planned: &Module, limits: &Limits) -> Result<()> {
    let options = Options { time_to_live: limits.older_than, ..cache::options(false) };
    let store = cache::open(dir, &planned.module, &options)?;
    store.collect(Duration::ZERO)?;
    // Never removes more live rows than the user has confirmed, even if others were removed in the meantime.
    if planned.evicted > 0 {
        store.make_room(planned.evicted)?;
        // Also removes the index of the removed segments.
        store.collect(Duration::ZERO)?;
    }
    Ok(())
}

impl Report for Pruned {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let did = if self.dry_run { "would remove" } else { "removed" };
        for Module { module, segments, rows, bytes, .. } in &self.modules {
            let segments = human::counted(*segments as u64, "segment");
            writeln!(
                to,
                "{module}: {did} {}, {segments}, {}",
                human::counted(*rows, "row"),
                human::size(*bytes)
            )?;
        }
        if self.modules.is_empty() {
            writeln!(to, "nothing to remove")?;
        }
        writeln!(to, "{} → {}", human::size(self.bytes_before), human::size(self.bytes_after))
    }
}
