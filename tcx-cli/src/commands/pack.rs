//! `tcx pack`: writes the live rows of a module to one file, and `tcx unpack`: adds them to a cache.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tcx_store::{Inspection, SegmentState, Spec, Store};

use crate::args::Module;
use crate::cache::add::{Added, Adder, BATCH, How};
use crate::cache::destination::Destination;
use crate::cache::specs::check_same;
use crate::cache::{self, Hidden};
use crate::console::output::{Output, Report};
use crate::console::progress;
use crate::failure::{Result, Verdict};
use crate::formats::draft;
use crate::formats::packed::{Packed, PackedBatch, Packer, in_order};
use crate::text::human;

use super::merge::titled;

/// The bytes of rows that are looked up together, about.
const LOOKUP_BYTES: u64 = 32 << 20;

#[derive(Debug, Serialize)]
struct Written {
    module: String,
    to: PathBuf,
    rows: u64,
    bytes: u64,
    /// BLAKE3 of the file but for its last 32 bytes, which are this digest.
    digest: String,
    /// Rows that do not verify.
    left_out: u64,
    #[serde(flatten)]
    hidden: Hidden,
}

pub(super) fn pack(module: &Module, to: &Path, output: &Output) -> Result<Verdict> {
    let inspection = cache::inspect(&module.dir, &module.module)?;
    let store = cache::open(&module.dir, &module.module, &cache::options(true))?;
    let source = Source { inspection: &inspection, store: &store, spec: inspection.spec() };
    let (digest, rows, bytes, left_out) = draft::create(to, |draft| {
        let mut packer = Packer::create(draft, source.spec)?;
        let left_out = source.write(&mut packer)?;
        let (digest, rows, bytes) = packer.finish()?;
        Ok((digest, rows, bytes, left_out))
    })?;
    let hidden = Hidden::of(&inspection);
    let module = module.module.clone();
    output.show(&Written { module, to: to.to_owned(), rows, bytes, digest, left_out, hidden })?;
    Ok(Verdict::good_if(left_out == 0 && hidden.is_nothing()))
}

/// The module whose rows are packed.
struct Source<'a> {
    inspection: &'a Inspection,
    store: &'a Store,
    spec: &'a Spec,
}

impl Source<'_> {
    /// Writes the rows in their order; returns the number of rows that do not verify.
    fn write(&self, packer: &mut Packer) -> Result<u64> {
        let (rows, mut left_out) = self.rows();
        let bar = progress::rows("packing", rows.len() as u64);
        let leaves = self.spec.leaves().len();
        for rows in rows.chunk_by(|a, b| a.0 == b.0).flat_map(|rows| rows.chunks(self.rows_at_once())) {
            let (view, keys) = (rows[0].0, rows.iter().map(|row| row.1).collect::<Vec<_>>());
            let found = cache::peek(self.store, self.spec.key_type(), &keys, view)?;
            let mut missing = found.all_missing_positions().peekable();
            for (position, key) in keys.iter().enumerate() {
                if missing.next_if_eq(&position).is_some() {
                    left_out += 1;
                    continue;
                }
                let row: Vec<_> = (0..leaves).map(|leaf| cache::value(&found, leaf, position)).collect();
                packer.add(view, key, &row)?;
            }
            bar.inc(keys.len() as u64);
        }
        bar.finish_and_clear();
        Ok(left_out)
    }

    /// The views and keys of the live rows in their order, and the number of those that cannot be read.
    fn rows(&self) -> (Vec<(u32, &[u8])>, u64) {
        let (mut rows, mut left_out) = (Vec::new(), 0);
        for row in self.inspection.rows_of(Vec::new()) {
            match row {
                Ok(row) => rows.push((row.view, row.key)),
                Err(_) => left_out += 1,
            }
        }
        rows.sort_unstable_by(|a, b| in_order(self.spec, *a, *b));
        // A key may come twice if another one has its hash.
        rows.dedup();
        (rows, left_out)
    }

    /// Limits the memory of a lookup by the mean size of a row.
    fn rows_at_once(&self) -> usize {
        let served = || self.inspection.segments().filter(|own| own.state == SegmentState::Served);
        let (bytes, rows) = served().fold((0, 0), |(bytes, rows), own| (bytes + own.bytes, rows + own.rows));
        let row_bytes = bytes.checked_div(rows).unwrap_or(0).max(1);
        (LOOKUP_BYTES / row_bytes).clamp(1, BATCH as u64) as usize
    }
}

#[derive(Debug, Serialize)]
struct Unpacked {
    dry_run: bool,
    module: String,
    from: PathBuf,
    /// Whether the cache did not have the module before.
    new: bool,
    #[serde(flatten)]
    added: Added,
}

/// Where the rows of a packed module go.
pub(super) struct Target<'a> {
    pub(super) cache: &'a Path,
    pub(super) create: bool,
    /// To the folder of their identity, whether or not it exists.
    pub(super) separate: bool,
}

impl Target<'_> {
    /// The folder of this spec: an identity that has one of its own keeps it.
    fn folder(&self, to: &Destination<'_>, spec: &Spec) -> String {
        let own = spec.separate_folder();
        if self.separate || to.has(&own) { own } else { spec.module_id().to_owned() }
    }
}

pub(super) fn unpack(target: &Target<'_>, from: &Path, how: How, output: &Output) -> Result<Verdict> {
    let to = Destination::at(target.cache, target.create)?;
    let packed = Packed::open(from)?;
    let spec = packed.spec();
    let module = target.folder(&to, spec);
    let remedy = "give --separate to keep these rows beside the others, in a folder of their identity, or name another cache, \
                  with --create for a new one";
    check_same((&to, &module), (from, spec), ("unpack", remedy))?;
    let new = !to.has(&module);
    let mut adder = Adder::new(&to, &module, spec.clone(), how)?;
    let bar = progress::rows("unpacking", packed.rows());
    packed.each_batch(|batch| {
        let rows: Vec<usize> = (0..batch.rows()).collect();
        for rows in rows.chunk_by(|a, b| batch.view(*a) == batch.view(*b)).flat_map(|rows| rows.chunks(BATCH))
        {
            add(batch, rows, &mut adder)?;
            bar.inc(rows.len() as u64);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    let unpacked = if how.dry_run { adder.added } else { adder.finish()? };
    output.show(&Unpacked { dry_run: how.dry_run, module, from: from.to_owned(), new, added: unpacked })?;
    Ok(Verdict::Good)
}

/// Adds rows of one view.
fn add(batch: &PackedBatch, rows: &[usize], adder: &mut Adder) -> Result<()> {
    let keys: Vec<&[u8]> = rows.iter().map(|row| batch.key(*row)).collect();
    adder.add(batch.view(rows[0]), &keys, None, |position, leaf| batch.leaf(leaf, rows[position]))
}

impl Report for Written {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let (rows, bytes) = (human::counted(self.rows, "row"), human::size(self.bytes));
        writeln!(to, "{rows} → {} ({bytes}, blake3:{})", self.to.display(), self.digest)?;
        if self.left_out > 0 {
            writeln!(to, "{} left out because they do not verify", human::counted(self.left_out, "row"))?;
        }
        self.hidden.text(&self.module, to)
    }
}

impl Report for Unpacked {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let did = if self.dry_run { "would be added" } else { "added" };
        self.added.text(&titled(&self.module, self.new), did, to)
    }
}
