//! `tcx info`: shows the outputs, the identity and the provenance of a module.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use tcx_store::{DYNAMIC_DIM, Inspection, LeafKind};

use crate::args::Module;
use crate::cache;
use crate::console::output::{HEADING, Output, Report, Table};
use crate::failure::{Result, Verdict};
use crate::text::human;

/// Bytes of a value, before it is shortened.
const LONGEST_VALUE: usize = 200;

#[derive(Debug, Serialize)]
struct Info {
    module: String,
    ids: &'static str,
    outputs: Vec<Output_>,
    identity: Vec<Entry>,
    provenance: Vec<Entry>,
    digest: String,
    instance: String,
    created_ms: u64,
    last_used_ms: Option<u64>,
    newest_change: u64,
    sound_changes: bool,
    formats: Vec<Format>,
    unrecognised: Vec<String>,
    #[serde(skip)]
    created: String,
    #[serde(skip)]
    last_used: String,
}

#[derive(Debug, Serialize)]
#[serde(rename = "Output")]
struct Output_ {
    name: String,
    r#type: String,
    /// `None` for a dynamic dimension.
    shape: Option<Vec<Option<usize>>>,
    bytes_per_row: Option<usize>,
    optional: bool,
}

/// A version of the format of segments, and how many have it.
#[derive(Debug, Serialize)]
struct Format {
    version: u32,
    segments: usize,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    value: String,
}

pub(super) fn run(module: &Module, output: &Output) -> Result<Verdict> {
    let inspection = cache::inspect(&module.dir, &module.module)?;
    output.show(&Info::new(&inspection))?;
    Ok(Verdict::Good)
}

impl Info {
    fn new(inspection: &Inspection) -> Self {
        let spec = inspection.spec();
        let outputs = spec.leaves().iter().map(|leaf| {
            let (r#type, shape) = match &leaf.kind {
                LeafKind::Dense { dtype, shape } | LeafKind::Ragged { dtype, shape } => (
                    dtype.to_string(),
                    Some(shape.iter().map(|&dim| (dim != DYNAMIC_DIM).then_some(dim)).collect()),
                ),
                other => (other.to_string(), None),
            };
            Output_ {
                name: leaf.name.clone(),
                r#type,
                shape,
                bytes_per_row: leaf.kind.width(),
                optional: leaf.optional,
            }
        });
        Self {
            module: inspection.folder().to_owned(),
            ids: spec.key_type().name(),
            outputs: outputs.collect(),
            identity: entries(spec.identity().entries()),
            provenance: entries(spec.provenance()),
            digest: inspection.digest(),
            instance: inspection.instance(),
            created_ms: human::millis(inspection.created()),
            last_used_ms: inspection.last_used().map(human::millis),
            newest_change: inspection.newest_change(),
            sound_changes: inspection.has_sound_changes(),
            formats: formats(inspection),
            unrecognised: inspection.other_files().unrecognised.clone(),
            created: human::date(inspection.created()),
            last_used: inspection.last_used().map_or_else(|| "?".to_owned(), human::ago),
        }
    }
}

/// The newest first.
fn formats(inspection: &Inspection) -> Vec<Format> {
    let mut counts = BTreeMap::new();
    for segment in inspection.segments().filter(|segment| segment.format > 0) {
        *counts.entry(segment.format).or_default() += 1;
    }
    counts.into_iter().rev().map(|(version, segments)| Format { version, segments }).collect()
}

fn entries(pairs: &[(String, String)]) -> Vec<Entry> {
    pairs.iter().map(|(name, value)| Entry { name: name.clone(), value: value.clone() }).collect()
}

impl Report for Info {
    fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "module     {}", self.module)?;
        writeln!(to, "ids        {}", self.ids)?;
        writeln!(to, "created    {}", self.created)?;
        writeln!(to, "last used  {}", self.last_used)?;
        writeln!(to, "digest     {}", self.digest)?;
        writeln!(to, "instance   {}", self.instance)?;
        writeln!(to, "changes    {}", self.newest_change)?;
        if !self.sound_changes {
            writeln!(to, "           one of them is damaged; run `tcx verify --repair`")?;
        }
        if !self.formats.is_empty() {
            let formats = self.formats.iter().map(|Format { version, segments }| {
                format!("{version} ({})", human::counted(*segments as u64, "file"))
            });
            writeln!(to, "formats    {}", formats.collect::<Vec<_>>().join(", "))?;
        }
        if !self.unrecognised.is_empty() {
            writeln!(to, "not tcx's  {}", self.unrecognised.join(", "))?;
        }
        writeln!(to)?;
        let mut table = Table::new(&["OUTPUT", "TYPE", "SHAPE", ">BYTES PER ROW"]);
        for output in &self.outputs {
            let shape = output.shape.as_deref().map_or_else(String::new, shape_text);
            let bytes =
                output.bytes_per_row.map_or_else(|| "varies".to_owned(), |bytes| human::count(bytes as u64));
            let optional = if output.optional { "optional " } else { "" };
            table.line([output.name.clone(), format!("{optional}{}", output.r#type), shape, bytes]);
        }
        table.write(to)?;
        pairs("IDENTITY", &self.identity, to)?;
        pairs("PROVENANCE", &self.provenance, to)
    }
}

fn shape_text(shape: &[Option<usize>]) -> String {
    let dims = shape.iter().map(|dim| dim.map_or_else(|| "_".to_owned(), |dim| dim.to_string()));
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn pairs(heading: &str, entries: &[Entry], to: &mut dyn Write) -> io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    writeln!(to, "\n{HEADING}{heading}{HEADING:#}")?;
    entries.iter().try_for_each(|entry| writeln!(to, "{} = {}", entry.name, shortened(&entry.value)))
}

/// A value that fits in a few lines.
fn shortened(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST_VALUE {
        return value.into();
    }
    format!(
        "{}… ({} bytes)",
        &value[..value.floor_char_boundary(LONGEST_VALUE)],
        human::count(value.len() as u64)
    )
    .into()
}
