//! `tcx merge`: adds the rows of B that A lacks to A.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_store::{Inspection, Row, SegmentState};

pub(super) use crate::cache::add::How;
use crate::cache::add::{Added, Adder, BATCH};
use crate::cache::destination::Destination;
use crate::cache::specs::check_same;
use crate::cache::{self, Hidden};
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Result, Verdict};
use crate::text::human;

#[derive(Debug, Serialize)]
struct Merged {
    dry_run: bool,
    modules: Vec<Module>,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    /// Whether A did not have the module before.
    new: bool,
    #[serde(flatten)]
    added: Added,
    /// Rows of B that do not verify.
    damaged: u64,
    /// On both sides.
    #[serde(flatten)]
    hidden: Hidden,
}

/// The source of the rows: all modules of a cache, or one.
pub(super) struct Source<'a> {
    pub(super) cache: &'a Path,
    pub(super) module: Option<&'a str>,
}

pub(super) fn run(a: &Path, from: &Source<'_>, create: bool, how: How, output: &Output) -> Result<Verdict> {
    let to = Destination::at(a, create)?;
    let mut inspections = Vec::new();
    for name in cache::chosen(from.cache, from.module)? {
        let inspection = cache::inspect(from.cache, &name)?;
        // All modules are compared before the first row is added.
        check_same(
            (&to, &name),
            (from.cache, inspection.spec()),
            ("merge", "merge other modules with --module NAME"),
        )?;
        inspections.push((name, inspection));
    }
    let mut modules = Vec::new();
    for (name, inspection) in inspections {
        modules.push(merge(&to, name, &inspection, how)?);
    }
    let is_whole = modules.iter().all(|module| module.damaged == 0 && module.hidden.is_nothing());
    output.show(&Merged { dry_run: how.dry_run, modules })?;
    Ok(Verdict::good_if(is_whole))
}

fn merge(to: &Destination<'_>, module: String, from: &Inspection, how: How) -> Result<Module> {
    let hidden = Hidden::of(from).and(to.hidden(&module)?);
    let new = !to.has(&module);
    let mut adder = Adder::new(to, &module, from.spec().clone(), how)?;
    let served = from.segments().filter(|own| own.state == SegmentState::Served);
    let bar = progress::rows(format!("merging {module}"), served.map(|own| own.rows).sum());
    let mut damaged = 0;
    let mut batch: Vec<Row<'_>> = Vec::new();
    for row in from.rows() {
        bar.inc(1);
        let Ok(row) = row else {
            damaged += 1;
            continue;
        };
        if batch.len() == BATCH || batch.last().is_some_and(|last| last.view != row.view) {
            add(&mut adder, &batch)?;
            batch.clear();
        }
        batch.push(row);
    }
    add(&mut adder, &batch)?;
    bar.finish_and_clear();
    let counts = if how.dry_run { adder.added } else { adder.finish()? };
    Ok(Module { module, new, added: counts, damaged, hidden })
}

fn add(adder: &mut Adder, batch: &[Row<'_>]) -> Result<()> {
    let Some(first) = batch.first() else { return Ok(()) };
    let keys: Vec<&[u8]> = batch.iter().map(|row| row.key).collect();
    let born: Vec<u64> = batch.iter().map(|row| row.born).collect();
    adder.add(first.view, &keys, Some(&born), |position, leaf| batch[position].leaf(leaf))
}

impl Report for Merged {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let did = if self.dry_run { "would be added" } else { "added" };
        for Module { module, new, added, damaged, hidden } in &self.modules {
            added.text(&titled(module, *new), did, to)?;
            if *damaged > 0 {
                let rows = human::counted(*damaged, "row");
                writeln!(to, "{module}: {rows} of B left out because they do not verify")?;
            }
            hidden.text(module, to)?;
        }
        Ok(())
    }
}

/// The name of a module, with a remark if it is a new one.
pub(super) fn titled(module: &str, new: bool) -> String {
    if new { format!("{module} (new)") } else { module.to_owned() }
}
