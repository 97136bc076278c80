//! `tcx head` and `tcx show`: print rows and their values.

use std::io::{self, Write};

use serde::Serialize;
use tcx_store::{Leaf, LookupOptions, Spec};

use super::about::About;
use crate::args::Module;
use crate::cache::{self, Hidden};
use crate::console::output::{HEADING, Output, Report};
use crate::failure::{Code, Failure, Result, Verdict};
use crate::text::human;
use crate::text::ids;
use crate::text::values::Values;
use crate::text::variants::Variants;

/// The characters that the preview of a value may take.
const ROOM: usize = 60;

#[derive(Debug, Serialize)]
struct Rows {
    module: String,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    id: String,
    view: u32,
    outputs: Vec<Output_>,
    /// Where the row comes from, of a single row.
    #[serde(flatten)]
    about: Option<About>,
}

#[derive(Debug, Serialize)]
struct Output_ {
    name: String,
    #[serde(flatten)]
    values: Values,
}

pub(super) fn head(module: &Module, count: usize, output: &Output) -> Result<Verdict> {
    let inspection = cache::inspect(&module.dir, &module.module)?;
    let (mut rows, mut damaged) = (Vec::new(), 0);
    for row in inspection.rows() {
        if rows.len() == count {
            break;
        }
        match row {
            Ok(row) => {
                rows.push(Row::new(inspection.spec(), row.key, row.view, |leaf| row.leaf(leaf)));
            }
            Err(_) => damaged += 1,
        }
    }
    output.show(&Rows { module: module.module.clone(), rows })?;
    if damaged > 0 {
        let rows = human::counted(damaged, "row");
        Output::note(&format!("{rows} left out because they do not verify; run `tcx verify`"));
    }
    let hidden = Hidden::of(&inspection);
    hidden.lines().iter().for_each(|line| Output::note(line));
    Ok(Verdict::good_if(damaged == 0 && hidden.is_nothing()))
}

pub(super) fn show(module: &Module, id: &str, view: u32, output: &Output) -> Result<Verdict> {
    let store = cache::open(&module.dir, &module.module, &cache::options(true))?;
    let spec = cache::spec(&module.dir, &module.module)?;
    let key = ids::parse(spec.key_type(), id)?;
    let found = store.lookup_with(ids::keys(spec.key_type(), &[&key], view)?, LookupOptions::uncounted())?;
    if found.missing() > 0 {
        let of_view = if view > 0 { format!(" in view {view}") } else { String::new() };
        let message = format!("no row with the id {id:?}{of_view} in `{}`", module.module);
        return Err(Failure::new(Code::NotFound, message));
    }
    let value = |leaf| found.is_present(leaf, 0).then(|| found.bytes(leaf, 0));
    let facts = store.describe(&ids::keys(spec.key_type(), &[&key], view)?)?.pop().flatten();
    let row = Row { about: facts.as_ref().map(About::new), ..Row::new(&spec, &key, view, value) };
    output.show(&Rows { module: module.module.clone(), rows: vec![row] })?;
    Ok(Verdict::Good)
}

impl Row {
    /// `bytes` returns the bytes of a leaf, or `None` if it has no value.
    fn new<'a>(spec: &Spec, key: &[u8], view: u32, bytes: impl Fn(usize) -> Option<&'a [u8]>) -> Self {
        let leaves = spec.leaves();
        let output = |(number, leaf): (usize, &Leaf)| {
            // The leaf after a tensor with several dynamic dimensions has their sizes.
            let sizes = leaves.get(number + 1).and_then(|_| bytes(number + 1)).unwrap_or_default();
            let values = Values::new(leaf, bytes(number), sizes);
            let variants = Variants::of(spec, number);
            Output_ { name: leaf.name.clone(), values: values.named(variants.as_ref()) }
        };
        let outputs = leaves.iter().enumerate().map(output).collect();
        Self { id: ids::show(spec.key_type(), key), view, outputs, about: None }
    }
}

impl Report for Rows {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return writeln!(to, "no rows");
        }
        let names = self.rows.iter().flat_map(|row| row.outputs.iter().map(|output| output.name.len()));
        let width = names.max().unwrap_or(0);
        for row in &self.rows {
            let view = if row.view > 0 { format!(" (view {})", row.view) } else { String::new() };
            writeln!(to, "{HEADING}{}{HEADING:#}{view}", row.id)?;
            for Output_ { name, values } in &row.outputs {
                let (preview, summary) = (values.preview(ROOM), values.summary());
                let kind = values.kind();
                writeln!(to, "{}", format!("  {name:<width$}  {kind}  {preview}  {summary}").trim_end())?;
            }
            row.about.iter().try_for_each(|about| about.text(to))?;
        }
        Ok(())
    }
}
