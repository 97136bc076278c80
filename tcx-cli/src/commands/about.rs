//! Where a row comes from: when and by which process it was computed, its file, its stamp and its bytes.

use std::io::{self, Write};

use serde::Serialize;
use tcx_store::{RowFacts, RowProcess, StoredStamp};

use crate::text::human;
use crate::text::ids;

#[derive(Debug, Serialize)]
pub(super) struct About {
    computed_ms: u64,
    processes: Vec<Process>,
    segment: Option<String>,
    stamp: Option<String>,
    bytes: u64,
    #[serde(skip)]
    computed: String,
}

#[derive(Debug, Serialize)]
struct Process {
    process: u32,
    host: Option<String>,
    program: Option<String>,
    started_ms: u64,
}

impl About {
    pub(super) fn new(facts: &RowFacts) -> Self {
        Self {
            computed_ms: human::millis(facts.computed),
            processes: facts.processes.iter().map(Process::new).collect(),
            segment: facts.segment.as_ref().map(ToString::to_string),
            stamp: facts.stamp.as_ref().map(stamp),
            bytes: facts.bytes,
            computed: human::ago(facts.computed),
        }
    }

    pub(super) fn text(&self, to: &mut dyn Write) -> io::Result<()> {
        let Self { processes, segment, stamp, bytes, computed, .. } = self;
        write!(to, "  computed {computed}")?;
        let names: Vec<String> = processes.iter().map(Process::name).collect();
        match &names[..] {
            [] => {}
            [one] => write!(to, " by {one}")?,
            several => write!(to, " by one of: {}", several.join("; "))?,
        }
        if let Some(stamp) = stamp {
            write!(to, ", stamp {stamp}")?;
        }
        let segment = segment.as_deref().unwrap_or("the write buffer");
        writeln!(to, "\n  {} in {segment}", human::size(*bytes))
    }
}

impl Process {
    fn new(own: &RowProcess) -> Self {
        let RowProcess { process, started, host, program, .. } = own;
        let (host, program) = (host.clone(), program.clone());
        Self { process: *process, host, program, started_ms: human::millis(*started) }
    }

    /// `process 4711 on node7 (train)`
    fn name(&self) -> String {
        let host = self.host.as_ref().map(|host| format!(" on {host}")).unwrap_or_default();
        let program = self.program.as_ref().map(|program| format!(" ({program})")).unwrap_or_default();
        format!("process {}{host}{program}", self.process)
    }
}

/// As ids are shown: a number in decimal, bytes in hex.
fn stamp(stamp: &StoredStamp) -> String {
    match stamp {
        StoredStamp::Number(number) => number.to_string(),
        StoredStamp::Bytes(bytes) => ids::show(tcx_store::KeyType::Bytes, bytes),
        _ => String::new(),
    }
}
