//! `tcx import`: adds rows that were computed elsewhere.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use serde::Serialize;
use tcx_store::{Leaf, Spec};

use crate::args::Module;
use crate::cache::add::{Added, Adder, BATCH, How};
use crate::cache::destination::Destination;
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Code, Failure, Result, Verdict};
use crate::formats::batches::{Batches, guarded};
use crate::formats::columns::{ids_of, leaf_of, views_of};
use crate::formats::dictionary::numbered;
use crate::formats::nested::sizes;
use crate::formats::npy_folder::{FolderReader, Part};
use crate::formats::packed::is_packed;
use crate::formats::selection::exported_name;
use crate::text::human;

#[derive(Debug, Serialize)]
struct Imported {
    module: String,
    from: PathBuf,
    #[serde(flatten)]
    added: Added,
}

pub(super) fn run(module: &Module, from: &Path, revive: bool, output: &Output) -> Result<Verdict> {
    let found = Destination::existing(&module.dir).and_then(|to| Ok((to.spec(&module.module)?, to)));
    let (spec, to) = found.map_err(|failure| match failure.code {
        Code::NotFound => Failure {
            message: format!(
                "{failure}; only the program of a module knows its identity: flush one batch with it, then import"
            ),
            ..failure
        },
        _ => failure,
    })?;
    let digest = spec.digest();
    let mut adder = Adder::new(&to, &module.module, spec, How { revive, dry_run: false })?;
    if from.is_dir() {
        check_digest(from, FolderReader::digest(from), &digest)?;
        folder(from, &mut adder)?;
    } else {
        batches(from, &digest, &mut adder)?;
    }
    let counts = adder.finish()?;
    output.show(&Imported { module: module.module.clone(), from: from.to_owned(), added: counts })?;
    Ok(Verdict::Good)
}

/// Rejects rows of another identity. If the file names no identity, the user is responsible for the values.
fn check_digest(from: &Path, found: Option<String>, expected: &str) -> Result<()> {
    if found.as_deref().is_none_or(|found| found == expected) {
        return Ok(());
    }
    let message = format!(
        "{} has rows of another identity: expected the digest {expected}, found {}; import them into the module that they were exported from",
        from.display(),
        found.unwrap_or_default()
    );
    Err(Failure::new(Code::Unfit, message))
}

fn folder(from: &Path, adder: &mut Adder) -> Result<()> {
    let mut reader = FolderReader::open(from, adder.spec())?;
    let bar = progress::rows("importing", reader.rows() as u64);
    let spec = adder.spec().clone();
    while let Some(part) = reader.next(&spec, BATCH)? {
        add(&part, 0..part.keys.len(), adder)?;
        bar.inc(part.keys.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Adds some rows, those of one view at a time.
fn add(part: &Part, rows: Range<usize>, adder: &mut Adder) -> Result<()> {
    let rows: Vec<usize> = rows.collect();
    for rows in rows.chunk_by(|a, b| part.views[*a] == part.views[*b]) {
        let keys: Vec<&[u8]> = rows.iter().map(|row| part.keys[*row].as_slice()).collect();
        adder.add(part.views[rows[0]], &keys, None, |position, leaf| {
            part.leaves[leaf][rows[position]].as_deref()
        })?;
    }
    Ok(())
}

fn batches(from: &Path, digest: &str, adder: &mut Adder) -> Result<()> {
    let unfit = |what: String| Failure::new(Code::Unfit, format!("{}: {what}", from.display()));
    let Batches { mut reader, identity } = Batches::open(from)?;
    // No output is named like this column of segments.
    if reader.schema().column_with_name("__key").is_some() {
        let is_packed = is_packed(&reader.schema());
        let (what, command) =
            if is_packed { ("packed module", "unpack") } else { ("segment of a cache", "merge") };
        return Err(unfit(format!(
            "this is a {what}, and `import` does not verify its checksums; use `tcx {command}`"
        )));
    }
    check_digest(from, identity, digest)?;
    let bar = progress::rows("importing", 0);
    while let Some(batch) = guarded(|| reader.next().transpose()).map_err(&unfit)? {
        bar.inc_length(batch.num_rows() as u64);
        let part = part(&batch, adder.spec()).map_err(&unfit)?;
        for start in (0..part.keys.len()).step_by(BATCH) {
            let rows = start..(start + BATCH).min(part.keys.len());
            bar.inc(rows.len() as u64);
            add(&part, rows, adder)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// The rows of a batch.
fn part(batch: &RecordBatch, spec: &Spec) -> Result<Part, String> {
    let schema = batch.schema_ref();
    let mut names: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    names.sort();
    if let Some([twice, _]) = names.array_windows().find(|[name, next]| name == next) {
        return Err(format!("two columns are named `{twice}`; rename one of them"));
    }
    let column = |name: &str| batch.column_by_name(name);
    let ids = column("id").ok_or("no column `id`; rename the column that contains the ids")?;
    let keys = ids_of(spec.key_type(), ids).map_err(|what| format!("column `id`: {what}"))?;
    let views = match column("view") {
        Some(views) => views_of(views).map_err(|what| format!("column `view`: {what}"))?,
        None => vec![0; keys.len()],
    };
    let mut leaves = Vec::new();
    let mut before: Option<(&Leaf, &ArrayRef)> = None;
    for (number, leaf) in spec.leaves().iter().enumerate() {
        let name = exported_name(leaf);
        let found = column(&name);
        let sized = before.map_or(Ok(None), |(leaf, array)| sizes(leaf, array));
        let rows = match (sized, found) {
            (Ok(None), None) => return Err(format!("no column `{name}`")),
            (Ok(None), Some(array)) => numbered(spec, number, array).and_then(|array| leaf_of(leaf, &array)),
            (sized, _) => sized.map(Option::unwrap_or_default),
        };
        leaves.push(rows.map_err(|what| format!("column `{}`: {what}", leaf.name))?);
        before = found.map(|array| (leaf, array));
    }
    Ok(Part { keys, views, leaves })
}

impl Report for Imported {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        self.added.text(&self.module, "added", to)
    }
}

impl Added {
    /// One line on the added rows, and one on those left out.
    pub(super) fn text(&self, module: &str, did: &str, to: &mut dyn Write) -> io::Result<()> {
        let present = human::count(self.present);
        writeln!(to, "{module}: {} {did}, {present} already present", human::counted(self.added, "row"))?;
        match self.invalidated {
            0 => Ok(()),
            rows => {
                let rows = human::counted(rows, "row");
                writeln!(
                    to,
                    "{module}: {rows} left out, since their ids were invalidated (--revive adds them)"
                )
            }
        }
    }
}
