//! `tcx ls`: lists the modules of a cache directory from the footers of their files.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use tcx_store::{Inspection, SegmentState, Spec};

use super::in_store;
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::output::{Output, Report, Table};
use crate::failure::{Failure, Result, Unreadable, Verdict};
use crate::text::human;

#[derive(Debug, Serialize)]
struct Listing {
    modules: Vec<Module>,
    bytes: u64,
    /// Modules that cannot be read.
    unreadable: Vec<Unreadable>,
}

#[derive(Debug, Serialize)]
struct Module {
    module: String,
    /// The id of the module. The caches of its identities have longer names.
    id: String,
    rows: u64,
    /// Whether some of the rows may have been invalidated.
    rows_at_most: bool,
    bytes: u64,
    /// Bytes that `tcx gc` removes.
    dead_bytes: u64,
    segments: usize,
    damaged_segments: usize,
    schema: String,
    weights: Option<String>,
    last_used_ms: Option<u64>,
    #[serde(skip)]
    last_used: String,
}

pub(super) fn run(dir: &Path, output: &Output) -> Result<Verdict> {
    if let Some(store) = StoreCache::at(dir)? {
        return in_store::ls(&store, output);
    }
    let (mut modules, mut unreadable) = (Vec::new(), Vec::new());
    for name in cache::all(dir)? {
        match Inspection::open(&dir.join(&name)) {
            Ok(inspection) => modules.push(Module::new(name, &inspection)),
            Err(error) => unreadable.push(Unreadable::new(name, error)),
        }
    }
    let bytes = modules.iter().map(|module| module.bytes).sum();
    let listing = Listing { modules, bytes, unreadable };
    output.show(&listing)?;
    verdict(&listing.unreadable)
}

/// Fails if a module cannot be read.
pub(super) fn verdict(unreadable: &[Unreadable]) -> Result<Verdict> {
    match unreadable {
        [] => Ok(Verdict::Good),
        unreadable @ [first, ..] => {
            let errors: Vec<_> =
                unreadable.iter().map(|own| format!("{}: {}", own.module, own.error)).collect();
            Err(Failure::new(first.code, errors.join("\n")))
        }
    }
}

impl Module {
    fn new(module: String, inspection: &Inspection) -> Self {
        let served = || inspection.segments().filter(|own| own.state == SegmentState::Served);
        let reclaimable = inspection.segments().filter(|own| own.state.is_reclaimable());
        Self {
            rows: served().map(|own| own.rows).sum(),
            rows_at_most: inspection.may_have_dead_rows(),
            bytes: cache::bytes(inspection),
            dead_bytes: reclaimable.map(|own| own.bytes).sum(),
            segments: served().count(),
            damaged_segments: inspection.segments().filter(|own| own.state.hides_rows()).count(),
            schema: schema(inspection.spec()),
            weights: weights(inspection.spec()),
            last_used_ms: inspection.last_used().map(human::millis),
            last_used: inspection.last_used().map_or_else(|| "?".to_owned(), human::ago),
            id: inspection.spec().module_id().to_owned(),
            module,
        }
    }
}

pub(super) fn schema(spec: &Spec) -> String {
    let leaves = spec.leaves().iter();
    leaves.map(|leaf| format!("{}: {}", leaf.name, leaf.described())).collect::<Vec<_>>().join(", ")
}

/// The fingerprint of the weights; of several networks, their number.
pub(super) fn weights(spec: &Spec) -> Option<String> {
    let entries = spec.identity().entries().iter();
    let weights: Vec<&String> = entries
        .filter(|(path, _)| path == "weights" || path.ends_with(".weights"))
        .map(|(_, fingerprint)| fingerprint)
        .collect();
    match &weights[..] {
        [] => None,
        [one] => Some((*one).clone()),
        several => Some(format!("{} networks", several.len())),
    }
}

impl Report for Listing {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        // All of them are unreadable, which an error reports.
        if self.modules.is_empty() {
            return Ok(());
        }
        let headings = ["MODULE", ">ROWS", ">BYTES", ">DEAD", ">SEGMENTS", "WEIGHTS", "LAST USED", "SCHEMA"];
        let mut table = Table::new(&headings);
        for module in &self.modules {
            let at_most = if module.rows_at_most { "≤ " } else { "" };
            let damaged = match module.damaged_segments {
                0 => String::new(),
                damaged => format!(" + {damaged} damaged"),
            };
            table.line([
                format!("{}{}", if cache::is_separate(&module.module) { "  " } else { "" }, module.module),
                format!("{at_most}{}", human::count(module.rows)),
                human::size(module.bytes),
                human::size(module.dead_bytes),
                format!("{}{damaged}", module.segments),
                module.weights.as_deref().map_or_else(|| "-".to_owned(), shortened),
                module.last_used.clone(),
                module.schema.clone(),
            ]);
        }
        table.write(to)
    }
}

/// `blake3:0123abcd…`
pub(super) fn shortened(fingerprint: &str) -> String {
    let short: String = fingerprint.chars().take(15).collect();
    if short.len() < fingerprint.len() { format!("{short}…") } else { short }
}
