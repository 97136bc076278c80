//! Giving a written segment its name, and showing it to readers.

use std::io;

use crate::bytes::Random;
use crate::core::Core;
use crate::index::build_run;
use crate::key::KeyHash;
use crate::live::Live;
use crate::name::{FileName, SegmentName};
use crate::runs::publish_run;
use crate::segment::WrittenSegment;

/// Publishes a segment, whose rows have these hashes in order, and its index run. Readers of this process see it then.
///
/// # Errors
///
/// What kept it from being durable; a segment that does not read back.
pub(crate) fn publish_segment(core: &Core, written: WrittenSegment, hashes: Vec<KeyHash>) -> io::Result<()> {
    let name = written.name;
    // The run first, so that whoever sees the segment finds it indexed. It can be made again: without it, the
    // segment is written all the same.
    let run = Random::new();
    if let Err(error) = publish_run(&*core.storage, run, &build_run(&[(name, hashes)])) {
        tracing::debug!(segment = %name, "cannot write its index run: {error}");
    }
    if let Err(error) = written.publish() {
        // Best effort: a run that stays knows a segment that nobody will find.
        let _ = core.storage.remove(&FileName::Run(run).to_string());
        return Err(error);
    }
    let mut live = core.live();
    let added = match live.add(name, run) {
        // Another process has joined it with others already, and collected it.
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_been_replaced(&mut live, name) => Ok(()),
        added => added,
    };
    core.install(&mut live);
    added
}

fn has_been_replaced(live: &mut Live, name: SegmentName) -> bool {
    live.refresh().is_ok() && live.replacing().iter().any(|segment| segment.inputs().contains(&name))
}
