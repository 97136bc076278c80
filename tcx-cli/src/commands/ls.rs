//! `tcx ls`: lists the modules of a cache directory from the footers of their files.

use std::path::Path;

use serde::Serialize;
use tcx_store::{Inspection, SegmentState, Spec};

use super::in_store;
use super::listing::{Listed, list};
use crate::cache;
use crate::cache::store::StoreCache;
use crate::console::output::Output;
use crate::failure::{Result, Verdict};
use crate::text::human;

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
    list(cache::all(dir)?, |name| Module::read(dir, name), output)
}

impl Module {
    fn read(cache: &Path, module: &str) -> Result<Self> {
        Ok(Self::new(module.to_owned(), &Inspection::open(&cache.join(module))?))
    }

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

impl Listed for Module {
    const HEADINGS: &'static [&'static str] =
        &["MODULE", ">ROWS", ">BYTES", ">DEAD", ">SEGMENTS", "WEIGHTS", "LAST USED", "SCHEMA"];

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn cells(&self) -> Vec<String> {
        let at_most = if self.rows_at_most { "≤ " } else { "" };
        let damaged = match self.damaged_segments {
            0 => String::new(),
            damaged => format!(" + {damaged} damaged"),
        };
        vec![
            indented(&self.module),
            format!("{at_most}{}", human::count(self.rows)),
            human::size(self.bytes),
            human::size(self.dead_bytes),
            format!("{}{damaged}", self.segments),
            shortened(self.weights.as_deref()),
            self.last_used.clone(),
            self.schema.clone(),
        ]
    }
}

/// The caches of the identities of a module are below it.
pub(super) fn indented(folder: &str) -> String {
    format!("{}{folder}", if cache::is_separate(folder) { "  " } else { "" })
}

/// `blake3:0123abcd…`
pub(super) fn shortened(fingerprint: Option<&str>) -> String {
    let Some(fingerprint) = fingerprint else { return "-".to_owned() };
    let short: String = fingerprint.chars().take(15).collect();
    if short.len() < fingerprint.len() { format!("{short}…") } else { short }
}
