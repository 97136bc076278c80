//! `tcx diff`: compares two cache directories.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_store::{Inspection, Lookup, Row, Spec, Store};

use crate::cache::specs;
use crate::cache::{self, Hidden};
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Result, Verdict};
use crate::text::human;
use crate::text::ids;

/// Rows that are looked up together.
const BATCH: usize = 1024;
/// The number of ids in each list.
const LISTED: usize = 10;

#[derive(Debug, Serialize)]
struct Difference {
    only_in_a: Vec<String>,
    only_in_b: Vec<String>,
    modules: Vec<Module>,
}

#[derive(Debug, Default, Serialize)]
struct Module {
    module: String,
    /// Differences of the outputs and the identity.
    differences: Vec<String>,
    same: u64,
    rows_only_in_a: Ids,
    rows_only_in_b: Ids,
    /// Rows whose values differ.
    rows_that_differ: Ids,
    damaged: u64,
    /// On both sides.
    #[serde(flatten)]
    hidden: Hidden,
}

/// A count of ids, and the first of them.
#[derive(Debug, Default, Serialize)]
struct Ids {
    count: u64,
    first: Vec<String>,
}

impl Ids {
    fn push(&mut self, id: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < LISTED {
            self.first.push(id());
        }
    }
}

pub(super) fn run(a: &Path, b: &Path, module: Option<&str>, output: &Output) -> Result<Verdict> {
    let (of_a, of_b) = match module {
        Some(module) => (cache::chosen(a, Some(module))?, cache::chosen(b, Some(module))?),
        None => (cache::all(a)?, cache::all(b)?),
    };
    let missing = |from: &[String], of: &[String]| {
        of.iter().filter(|name| !from.contains(name)).cloned().collect::<Vec<_>>()
    };
    let mut modules = Vec::new();
    for name in of_a.iter().filter(|name| of_b.contains(name)) {
        modules.push(compare(a, b, name)?);
    }
    let difference =
        Difference { only_in_a: missing(&of_b, &of_a), only_in_b: missing(&of_a, &of_b), modules };
    output.show(&difference)?;
    let is_same = difference.only_in_a.is_empty()
        && difference.only_in_b.is_empty()
        && difference.modules.iter().all(Module::is_same);
    Ok(Verdict::good_if(is_same))
}

fn compare(a: &Path, b: &Path, name: &str) -> Result<Module> {
    let (in_a, in_b) = (cache::inspect(a, name)?, cache::inspect(b, name)?);
    let hidden = Hidden::of(&in_a).and(Hidden::of(&in_b));
    let mut module = Module { module: name.to_owned(), hidden, ..Module::default() };
    module.differences = specs::differences(in_a.spec(), in_b.spec());
    let comparable =
        in_a.spec().key_type() == in_b.spec().key_type() && in_a.spec().leaves() == in_b.spec().leaves();
    if !comparable {
        return Ok(module);
    }
    let (store_a, store_b) =
        (cache::open(a, name, &cache::options(true))?, cache::open(b, name, &cache::options(true))?);
    let spec = in_a.spec();
    each_batch(&in_a, "comparing A", &mut module.damaged, |rows| {
        let found = peek(&store_b, spec, rows)?;
        let missing: Vec<usize> = found.all_missing_positions().collect();
        for (position, row) in rows.iter().enumerate() {
            let id = || ids::show(spec.key_type(), row.key);
            if missing.binary_search(&position).is_ok() {
                module.rows_only_in_a.push(id);
            } else if (0..spec.leaves().len())
                .all(|leaf| cache::value(&found, leaf, position) == row.leaf(leaf))
            {
                module.same += 1;
            } else {
                module.rows_that_differ.push(id);
            }
        }
        Ok(())
    })?;
    let only_in_b = &mut module.rows_only_in_b;
    each_batch(&in_b, "comparing B", &mut module.damaged, |rows| {
        let found = peek(&store_a, spec, rows)?;
        found
            .all_missing_positions()
            .for_each(|position| only_in_b.push(|| ids::show(spec.key_type(), rows[position].key)));
        Ok(())
    })?;
    Ok(module)
}

fn peek(store: &Store, spec: &Spec, rows: &[Row<'_>]) -> Result<Lookup> {
    let keys: Vec<&[u8]> = rows.iter().map(|row| row.key).collect();
    cache::peek(store, spec.key_type(), &keys, rows.first().map_or(0, |row| row.view))
}

/// Calls `see` with batches of rows; each batch has one view.
fn each_batch(
    of: &Inspection,
    what: &str,
    damaged: &mut u64,
    mut see: impl FnMut(&[Row<'_>]) -> Result<()>,
) -> Result<()> {
    let bar = progress::rows(what, of.segments().map(|own| own.rows).sum());
    let mut batch: Vec<Row<'_>> = Vec::new();
    for row in of.rows() {
        bar.inc(1);
        let Ok(row) = row else {
            *damaged += 1;
            continue;
        };
        if batch.len() == BATCH || batch.last().is_some_and(|last| last.view != row.view) {
            see(&batch)?;
            batch.clear();
        }
        batch.push(row);
    }
    if !batch.is_empty() {
        see(&batch)?;
    }
    bar.finish_and_clear();
    Ok(())
}

impl Module {
    fn is_same(&self) -> bool {
        let ids = [&self.rows_only_in_a, &self.rows_only_in_b, &self.rows_that_differ];
        let is_whole = self.damaged == 0 && self.hidden.is_nothing();
        self.differences.is_empty() && is_whole && ids.iter().all(|ids| ids.count == 0)
    }
}

impl Report for Difference {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        for (side, names) in [("A", &self.only_in_a), ("B", &self.only_in_b)] {
            names.iter().try_for_each(|name| writeln!(to, "{name}: only in {side}"))?;
        }
        for module in &self.modules {
            let name = &module.module;
            module.differences.iter().try_for_each(|difference| writeln!(to, "{name}: {difference}"))?;
            writeln!(to, "{name}: {} the same", human::counted(module.same, "row"))?;
            let ids = [
                ("only in A", &module.rows_only_in_a),
                ("only in B", &module.rows_only_in_b),
                ("with different values", &module.rows_that_differ),
            ];
            for (what, ids) in ids.into_iter().filter(|(_, ids)| ids.count > 0) {
                let more = if ids.count > ids.first.len() as u64 { ", …" } else { "" };
                let rows = human::counted(ids.count, "row");
                writeln!(to, "{name}: {rows} {what}: {}{more}", ids.first.join(", "))?;
            }
            if module.damaged > 0 {
                writeln!(to, "{name}: {} that do not verify", human::counted(module.damaged, "row"))?;
            }
            module.hidden.text(name, to)?;
        }
        Ok(())
    }
}
